"""What the openai client raises when something is wrong, by case.

Usage: openai_errors.py CASE URL. Fails with a traceback; prints `ok` at the end.
"""

import sys

import openai

case, url = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=20)


def ask(text="Hello", **more):
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], **more
    )


def expect(kind, status, *, retry_after=False, made_by_gateway=True, **call):
    try:
        ask(**call)
    except openai.APIStatusError as error:
        assert type(error) is kind, (type(error), error)
        assert error.status_code == status, error
        headers = error.response.headers
        assert ("x-atalho-error" in headers) == made_by_gateway, headers
        assert not retry_after or int(headers["retry-after"]) >= 0, headers
        assert isinstance(error.body, dict) and error.body["message"], error.body
        assert isinstance(error.body["type"], str), error.body
        return error
    raise AssertionError(f"no error in case {case}")


if case == "no_instance":
    expect(openai.InternalServerError, 503, retry_after=True)
elif case == "unreachable":
    expect(openai.InternalServerError, 503, retry_after=True)
elif case == "slow":
    expect(openai.InternalServerError, 504)
elif case == "busy":
    expect(openai.RateLimitError, 429, retry_after=True)
elif case == "bad_tenant":
    header = {"X-Amzn-SageMaker-Prefix-Aware-Id": "x" * 65}
    expect(openai.BadRequestError, 400, extra_headers=header)
elif case == "too_large":
    expect(openai.APIStatusError, 413, text="x" * 200_000)
elif case == "its_own":
    error = expect(openai.NotFoundError, 404, made_by_gateway=False)
    assert error.body == {"message": "no such model", "type": "x", "param": "model", "code": "m"}
elif case == "broken_stream":
    seen = []
    try:
        for chunk in ask(stream=True):
            seen.append(chunk.choices[0].delta.content)
    # Which class it is depends on the client's transport.
    except Exception:
        assert seen == list("01234")[: len(seen)], seen
    else:
        raise AssertionError(f"the stream ended as if it were whole, after {seen}")
else:
    raise SystemExit(f"unknown case {case}")
print("ok")
