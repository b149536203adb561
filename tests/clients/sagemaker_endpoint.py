"""An endpoint's life by SageMaker's clients: the AWS CLI, boto3, the openai client with a token of sagemaker-core.

Usage: sagemaker_endpoint.py CONTROL_URL RUNTIME_URL Nothing of the clients is patched, but where the API is and
who calls. Fails with a traceback; prints `ok` at the end.
"""

import asyncio
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import traceback

CONTROL, RUNTIME = sys.argv[1:]
REGION = "us-east-1"
# Which address is whose is decided by these alone.
os.environ |= {
    "AWS_ENDPOINT_URL_SAGEMAKER": CONTROL,
    "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": RUNTIME,
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

import boto3  # noqa: E402
import botocore  # noqa: E402
import openai  # noqa: E402
from botocore.config import Config  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402
from sagemaker.core.token_generator import generate_token  # noqa: E402

# The AWS CLI of PyPI brings its own copy of the service models, which is older than prefix-aware routing. It looks
# for newer ones here.
os.environ["AWS_DATA_PATH"] = str(pathlib.Path(botocore.__file__).parent / "data")

ENDPOINT = "example-llm-endpoint"
STREAMS = 200
sagemaker = boto3.client("sagemaker")
# One connection for each of the streams.
runtime = boto3.client(
    "sagemaker-runtime",
    config=Config(max_pool_connections=STREAMS, read_timeout=600, retries={"total_max_attempts": 1}),
)


def aws(*arguments):
    """The AWS CLI's exit code, and what it printed."""
    command = [pathlib.Path(sys.executable).parent / "aws", *arguments, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def aws_json(*arguments):
    code, out, said = aws(*arguments)
    assert code == 0, (arguments, code, said)
    return json.loads(out) if out.strip() else {}


def variant(count, strategy, **prefix_aware):
    routing = {"RoutingStrategy": strategy}
    if prefix_aware:
        routing["PrefixAwareRoutingConfig"] = prefix_aware
    return {
        "VariantName": "AllTraffic",
        "ModelName": "example-llm-model",
        "InitialInstanceCount": count,
        "InstanceType": "ml.p5.48xlarge",
        "RoutingConfig": routing,
    }


def wait_until_in_service():
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 600})
    return sagemaker.describe_endpoint(EndpointName=ENDPOINT)


def arn(resource):
    return f"arn:aws:sagemaker:{REGION}:000000000000:{resource}"


# === 1. it is made ===


def make():
    container = {"Image": "vllm/vllm-openai:latest", "Environment": {"MODEL": "llm"}}
    model = ["sagemaker", "create-model", "--model-name", "example-llm-model"]
    model += ["--primary-container", json.dumps(container)]
    model += ["--execution-role-arn", "arn:aws:iam::000000000000:role/Example"]
    assert aws_json(*model) == {"ModelArn": arn("model/example-llm-model")}
    code, _, said = aws(*model)
    assert code != 0 and "(ValidationException)" in said, (code, said)
    assert f'Cannot create already existing model "{arn("model/example-llm-model")}"' in said, said

    first = variant(3, "PREFIX_AWARE", PrefixLength=4096, ConcurrencyThreshold=10)
    config = ["sagemaker", "create-endpoint-config", "--endpoint-config-name", "example-llm-config"]
    answer = aws_json(*config, "--production-variants", json.dumps([first]))
    assert answer == {"EndpointConfigArn": arn("endpoint-config/example-llm-config")}, answer
    described = sagemaker.describe_endpoint_config(EndpointConfigName="example-llm-config")
    [kept] = described["ProductionVariants"]
    assert first.items() <= kept.items(), kept

    create = ["sagemaker", "create-endpoint", "--endpoint-name", ENDPOINT]
    answer = aws_json(*create, "--endpoint-config-name", "example-llm-config")
    assert answer == {"EndpointArn": arn(f"endpoint/{ENDPOINT}")}, answer
    described = wait_until_in_service()
    [running] = described["ProductionVariants"]
    assert running["CurrentInstanceCount"] == running["DesiredInstanceCount"] == 3, running
    assert running["CurrentWeight"] == 1.0, running
    assert described["EndpointConfigName"] == "example-llm-config", described
    listed = aws_json("sagemaker", "list-endpoints", "--status-equals", "InService")
    assert ENDPOINT in [endpoint["EndpointName"] for endpoint in listed["Endpoints"]], listed


def refused():
    """What is wrong is refused by name, whoever asks."""
    wrong = variant(3, "PREFIX_AWARE", PrefixLength=1023, ConcurrencyThreshold=10)
    lax = boto3.client("sagemaker", config=Config(parameter_validation=False))
    for call, says in [
        (
            lambda: lax.create_endpoint_config(
                EndpointConfigName="wrong", ProductionVariants=[wrong]
            ),
            "Value '1023' at 'productionVariants.1.member.routingConfig.prefixAwareRoutingConfig."
            "prefixLength' failed to satisfy constraint: Member must have value greater than or "
            "equal to 1024",
        ),
        (
            lambda: lax.create_endpoint(EndpointName="a_b", EndpointConfigName="c"),
            "Value 'a_b' at 'endpointName' failed to satisfy constraint: Member must satisfy regular "
            "expression pattern",
        ),
        (
            lambda: sagemaker.describe_endpoint(EndpointName="nowhere"),
            f'Could not find endpoint "{arn("endpoint/nowhere")}".',
        ),
        (
            lambda: sagemaker.delete_endpoint_config(EndpointConfigName="nowhere"),
            f'Could not find endpoint configuration "{arn("endpoint-config/nowhere")}".',
        ),
        (lambda: sagemaker.list_models(NextToken="abc"), "NextToken"),
    ]:
        try:
            call()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "ValidationException", error
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error.response
            assert says in error.response["Error"]["Message"], error
        else:
            raise AssertionError(f"not refused: {says}")
    try:
        sagemaker.list_training_jobs()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "UnknownOperationException", error
    else:
        raise AssertionError("an operation that is not offered")


# === 2. it is called ===

# A tail of a frame, and text that is no frame at all: what comes out is what went in.
SAID = "data: {\"a\": 1}\n\ndata: é\n\n" * 40 + "data: [DO"


def call_by_cli():
    with tempfile.TemporaryDirectory() as directory:
        sent, got = (pathlib.Path(directory) / name for name in ("request.json", "output.json"))
        sent.write_text(json.dumps({"answer": SAID}))
        answer = aws_json(
            *["sagemaker-runtime", "invoke-endpoint", "--endpoint-name", ENDPOINT],
            *["--content-type", "application/json", "--body", f"fileb://{sent}"],
            *["--prefix-aware-id", "tenant-1", "--target-variant", "AllTraffic"],
            *["--custom-attributes", "trace=1", "--inference-id", "inference-1", str(got)],
        )
        assert got.read_bytes() == SAID.encode()
    assert answer["InvokedProductionVariant"] == "AllTraffic", answer
    assert answer["CustomAttributes"] == "seen trace=1", answer


def call_by_boto3():
    with_all = {
        "EndpointName": ENDPOINT,
        "ContentType": "application/json",
        "PrefixAwareId": "tenant-1",
        "TargetVariant": "AllTraffic",
        "CustomAttributes": "trace=2",
        "InferenceId": "inference-2",
    }
    answer = runtime.invoke_endpoint(Body=json.dumps({"answer": SAID}), **with_all)
    assert answer["Body"].read() == SAID.encode()
    assert answer["InvokedProductionVariant"] == "AllTraffic", answer
    body = json.dumps({"answer": SAID, "stream": True})
    answer = runtime.invoke_endpoint_with_response_stream(Body=body, **with_all)
    parts = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert b"".join(parts) == SAID.encode(), parts
    assert answer["InvokedProductionVariant"] == "AllTraffic", answer


# === 3. by the openai client ===


def call_by_openai():
    client = openai.OpenAI(
        base_url=f"{RUNTIME}/endpoints/{ENDPOINT}/openai/v1",
        api_key=generate_token(region=REGION),
        max_retries=0,
    )
    asked = {
        "model": "",
        "messages": [{"role": "user", "content": "Why is the sky blue? " * 300}],
        "prompt_cache_key": "tenant-1",
    }
    answers = [client.chat.completions.with_raw_response.create(**asked) for _ in range(4)]
    homes = {answer.headers["x-atalho-instance"] for answer in answers}
    assert len(homes) == 1, homes
    assert answers[0].parse().choices[0].message.content == "/v1/chat/completions"
    with client.chat.completions.create(stream=True, **asked) as stream:
        words = [chunk.choices[0].delta.content for chunk in stream]
    assert words == ["first", "second", "third"], words


# === 4. it changes under load ===


class Streams:
    """Streams that stay open until an instance is asked to release them."""

    def __init__(self):
        self.begun = threading.Semaphore(0)
        self.wanted = {
            "messages": [{"role": "user", "content": "A long story, please. " * 300}],
            "stream": True,
            "hold": True,
        }

    async def by_openai(self, client):
        wanted = self.wanted | {"model": ""}
        del wanted["hold"]
        words = []
        stream = await client.chat.completions.create(**wanted, extra_body={"hold": True})
        async for chunk in stream:
            if not words:
                self.begun.release()
            words.append(chunk.choices[0].delta.content)
        return words

    async def all_by_openai(self, count):
        async with openai.AsyncOpenAI(
            base_url=f"{RUNTIME}/endpoints/{ENDPOINT}/openai/v1",
            api_key=generate_token(region=REGION),
            max_retries=0,
        ) as client:
            return await asyncio.gather(*(self.by_openai(client) for _ in range(count)))

    def by_boto3(self):
        answer = runtime.invoke_endpoint_with_response_stream(
            EndpointName=ENDPOINT, ContentType="application/json", Body=json.dumps(self.wanted)
        )
        text = b""
        for event in answer["Body"]:
            if not text:
                self.begun.release()
            text += event["PayloadPart"]["Bytes"]
        frames = [frame.removeprefix("data: ") for frame in text.decode().split("\n\n")]
        assert frames[3:] == ["[DONE]", ""], frames
        return [json.loads(frame)["choices"][0]["delta"]["content"] for frame in frames[:3]]


def asked(count, prompt):
    """Which instances get as many requests, one after the other."""
    body = json.dumps({"messages": [{"role": "user", "content": prompt}]})
    homes = []
    for _ in range(count):
        answer = runtime.invoke_endpoint(
            EndpointName=ENDPOINT, ContentType="application/json", Body=body
        )
        answer["Body"].read()
        homes.append(answer["ResponseMetadata"]["HTTPHeaders"]["x-atalho-instance"])
    return homes


def update(name, changed):
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[changed])
    update = ["sagemaker", "update-endpoint", "--endpoint-name", ENDPOINT]
    aws_json(*update, "--endpoint-config-name", name)
    described = wait_until_in_service()
    assert described["EndpointConfigName"] == name, described
    [running] = described["ProductionVariants"]
    assert running["CurrentInstanceCount"] == changed["InitialInstanceCount"], running


def change_under_load():
    streams = Streams()
    in_boto3 = STREAMS // 4
    pool = concurrent.futures.ThreadPoolExecutor(in_boto3 + 1)
    running = [pool.submit(streams.by_boto3) for _ in range(in_boto3)]
    others = pool.submit(asyncio.run, streams.all_by_openai(STREAMS - in_boto3))
    for _ in range(STREAMS):
        assert streams.begun.acquire(timeout=600), "a stream has not begun"

    prompt = "What is new? " * 400
    update(
        "one-home-for-each-prefix",
        variant(4, "PREFIX_AWARE", PrefixLength=1024, ConcurrencyThreshold=1024),
    )
    # Under a threshold of 10 the streams would have sent these elsewhere.
    assert len(set(asked(20, prompt))) == 1
    update("by-chance-on-two", variant(2, "RANDOM"))
    # Streams on the two hosts that went go on.
    both = set(asked(64, prompt))
    assert len(both) == 2, both
    update("to-the-idle-one", variant(5, "LEAST_OUTSTANDING_REQUESTS"))
    # These have streams, the last host has none.
    idle = set(asked(20, prompt))
    assert not idle & both, (idle, both)

    assert not others.done() and not any(stream.done() for stream in running), "streams go on"
    runtime.invoke_endpoint(EndpointName=ENDPOINT, Body=json.dumps({"release": True}))
    whole = ["first", "second", "third"]
    assert others.result(600) == [whole] * (STREAMS - in_boto3)
    assert [stream.result(600) for stream in running] == [whole] * in_boto3
    pool.shutdown()


# === it is deleted ===


def delete():
    sagemaker.delete_endpoint(EndpointName=ENDPOINT)
    waiter = sagemaker.get_waiter("endpoint_deleted")
    waiter.wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 600})
    try:
        runtime.invoke_endpoint(EndpointName=ENDPOINT, Body=b"{}")
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationError", error
    else:
        raise AssertionError("it is gone")
    pages = sagemaker.get_paginator("list_endpoint_configs").paginate(
        PaginationConfig={"PageSize": 1}
    )
    names = [config["EndpointConfigName"] for page in pages for config in page["EndpointConfigs"]]
    # That of the file, which is the file's to delete.
    names.remove("default")
    assert len(names) == len(set(names)) == 4, names
    for name in names:
        sagemaker.delete_endpoint_config(EndpointConfigName=name)
    listed = aws_json("sagemaker", "list-endpoint-configs")["EndpointConfigs"]
    assert [config["EndpointConfigName"] for config in listed] == ["default"], listed
    assert aws_json("sagemaker", "delete-model", "--model-name", "example-llm-model") == {}


try:
    make()
    refused()
    call_by_cli()
    call_by_boto3()
    call_by_openai()
    change_under_load()
    delete()
except BaseException:
    traceback.print_exc()
    # Not after the streams that nobody releases any more.
    os._exit(1)
print("ok")
