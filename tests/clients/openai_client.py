"""What programs do with the openai client, against a gateway in front of simulated engines.

Usage: openai_client.py URL. Fails with a traceback; prints `ok` at the end.
"""

import asyncio
import base64
import sys

import openai
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

URL = sys.argv[1]
MODEL = "sim-model"
SYSTEM = "You are a careful assistant of tenant %d. " + "Think before you answer. " * 80


def conversation(tenant, question):
    return [
        {"role": "system", "content": SYSTEM % tenant},
        {"role": "user", "content": [{"type": "text", "text": question}]},
    ]


def plain(client):
    """Two questions after the same beginning meet at one instance, and find their prompt cached."""
    homes = []
    for question in ("Why is the sky blue?", "Why is the sea green?"):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, max_tokens=8, messages=conversation(1, question)
        )
        homes.append(raw.headers["x-atalho-instance"])
        assert raw.headers["x-atalho-reason"] == "home", raw.headers
        answer = raw.parse()
        assert answer.choices[0].message.content, answer
    assert homes[0] == homes[1], homes
    assert answer.usage.prompt_tokens_details.cached_tokens > 100, answer.usage


def streaming(client):
    text, finish, usage = "", None, None
    with client.chat.completions.create(
        model=MODEL,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
        messages=conversation(2, "Count."),
    ) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    assert text and finish == "length", (text, finish)
    assert usage.completion_tokens == 20, usage


def leaving(client):
    """A program that has seen enough closes the stream."""
    stream = client.chat.completions.create(
        model=MODEL, max_tokens=5000, stream=True, messages=conversation(3, "Tell me everything.")
    )
    for number, _ in enumerate(stream):
        if number == 3:
            break
    stream.close()


def other_apis(client):
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=4).choices[0].text
    assert client.responses.create(model=MODEL, input="Hello", max_output_tokens=16).output_text
    assert client.embeddings.create(model=MODEL, input="a").data[0].embedding
    assert [model.id for model in client.models.list()] == [MODEL]


def errors():
    """Errors that the gateway makes itself are what the client knows how to raise."""
    nowhere = openai.OpenAI(base_url=f"{URL}/endpoints/nowhere/openai/v1", api_key="-", max_retries=0)
    try:
        nowhere.chat.completions.create(model=MODEL, messages=conversation(1, "?"))
    except openai.NotFoundError as error:
        assert error.code == "unknown_endpoint", error.body
        assert error.response.headers["x-atalho-error"] == "unknown_endpoint"
    else:
        raise AssertionError("no error for an endpoint that does not exist")


def token():
    """A bearer token as SageMaker's clients make it: a presigned URL in base64."""
    request = AWSRequest("POST", "https://sagemaker.eu-west-1.amazonaws.com/?Action=CallWithBearerToken")
    credentials = Credentials("any", "any", "session " * 100)
    SigV4QueryAuth(credentials, "sagemaker", "eu-west-1", expires=43200).add_auth(request)
    return base64.b64encode(request.url.encode()).decode()


def endpoints():
    """By the name of an endpoint, and of a component; the bearer token is taken as it comes."""
    for path in ("", "/inference-components/lora-1"):
        url = f"{URL}/endpoints/default{path}/openai/v1"
        with openai.OpenAI(base_url=url, api_key=token(), max_retries=0) as client:
            plain(client)
            streaming(client)
            answer = client.chat.completions.create(
                model="", max_tokens=2, messages=conversation(1, "?"), prompt_cache_key="tenant-7"
            )
            assert answer.choices, answer


async def many():
    """Conversations at the same time stay apart: each answer belongs to its question."""
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0) as client:

        async def ask(number):
            expected = None
            for _ in range(3):
                answer = await client.chat.completions.create(
                    model=MODEL,
                    max_tokens=12,
                    messages=conversation(number % 5, f"Question {number}"),
                    prompt_cache_key=f"tenant-{number % 5}",
                )
                text = answer.choices[0].message.content
                # The simulated engine says the same to the same prompt.
                assert expected in (None, text), (number, expected, text)
                expected = text

        await asyncio.gather(*(ask(number) for number in range(24)))


with openai.OpenAI(base_url=f"{URL}/v1", api_key="-", max_retries=0) as client:
    plain(client)
    streaming(client)
    leaving(client)
    other_apis(client)
errors()
endpoints()
asyncio.run(many())
print("ok")
