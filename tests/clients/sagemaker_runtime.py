"""SageMaker's runtime API by the AWS SDK, against a gateway in front of an instance that does as it is told:
by `X-Amzn-SageMaker-Custom-Attributes` and the body of each request.

Usage: sagemaker_runtime.py URL. Fails with a traceback; prints `ok` at the end.
"""

import json
import random
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

random.seed(7)


def make(**config):
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=sys.argv[1],
        region_name="eu-west-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, **config),
    )


client = make()
# What the SDK would refuse by itself is for the gateway to refuse.
lax = make(parameter_validation=False)


def call(operation, how, body, client=client, **more):
    more.setdefault("CustomAttributes", how)
    return getattr(client, operation)(
        EndpointName="default", Body=body, ContentType="application/octet-stream", **more
    )


def stream(how, body, **more):
    return call("invoke_endpoint_with_response_stream", how, body, **more)


def joined(answer):
    return b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])


# === streams, however they are framed and cut ===

for round in range(60):
    how = random.choice(["chunked", "sized", "close"])
    size = random.choice([0, 1, 100, 65_535, 65_536, 300_000, random.randrange(1_000_000)])
    body = random.randbytes(size)
    answer = stream(
        how,
        body,
        Accept="a/b",
        PrefixAwareId="tenant 1",
        TargetVariant="main",
        InferenceComponentName="component-1",
        InferenceId="inference 1",
    )
    assert answer["ContentType"] == "x/y", answer
    assert answer["InvokedProductionVariant"] == "main", answer
    assert answer["CustomAttributes"] == "seen " + how, answer
    assert joined(answer) == body, (round, how, size)

# === streams that end badly ===

for how, code in [("break", "StreamBroken"), ("stall", "ModelInvocationTimeExceeded")]:
    answer = stream(how, b"half of it")
    got = b""
    try:
        for event in answer["Body"]:
            got += event["PayloadPart"]["Bytes"]
    except EventStreamError as error:
        assert error.response["Error"]["Code"] == "ModelStreamError", error.response
        assert error.response["Error"]["Message"], error.response
    else:
        raise AssertionError("no error")
    assert got == b"half of it", got

# === answers and errors ===

answer = call("invoke_endpoint", "sized", b"x" * 100, InferenceId="i", TargetVariant="main")
assert answer["Body"].read() == b"x" * 100
assert (answer["ContentType"], answer["InvokedProductionVariant"]) == ("x/y", "main")
assert answer["CustomAttributes"] == "seen sized"

for operation in ["invoke_endpoint", "invoke_endpoint_with_response_stream"]:
    for status in [400, 404, 422, 429, 500, 503]:
        try:
            call(operation, str(status), b'{"error": "no \xc3\xa9"}')
        except client.exceptions.ModelError as error:
            response = error.response
            assert response["ResponseMetadata"]["HTTPStatusCode"] == 424, response
            assert response["OriginalStatusCode"] == status, response
            assert response["OriginalMessage"] == '{"error": "no é"}', response
            assert "no é" in response["Message"] and "LogStreamArn" in response, response
        else:
            raise AssertionError(f"no error for {status}")


def refused(call):
    try:
        call()
    except ClientError as error:
        response = error.response
        assert response["Error"]["Code"] == "ValidationError", response
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 400, response
        return response["Error"]["Message"]
    return None


message = refused(lambda: client.invoke_endpoint(EndpointName="nowhere", Body=b"x"))
assert "nowhere" in message and "not found" in message, message
message = refused(lambda: client.invoke_endpoint_async(EndpointName="default", InputLocation="s3://b/k"))
assert "InvokeEndpointAsync is not offered" in message, message

# === every parameter at the edges of its length, and against its pattern ===

checked = 0
for operation in ["InvokeEndpoint", "InvokeEndpointWithResponseStream"]:
    model = client.meta.service_model.operation_model(operation)
    method = "invoke_endpoint" if operation == "InvokeEndpoint" else "invoke_endpoint_with_response_stream"
    for name, shape in model.input_shape.members.items():
        if shape.serialization.get("location") != "header":
            continue
        most, least = shape.metadata["max"], shape.metadata.get("min", 0)
        pattern = shape.metadata["pattern"]
        names = "a-zA-Z0-9](" in pattern
        cases = [("x" * most, True), ("x" * (most + 1), False)]
        if least or names:
            cases += [("x" * max(least, 1), True)]
        if names:
            cases += [("a-1--b", True), ("-a", False), ("a-", False), ("a_b", False), ("a b", False)]
            cases += [("NEW_SESSION", "NEW_SESSION" in pattern)]
        else:
            cases += [("a b~!", True)]
        for value, fits in cases:
            if name == "TargetVariant" and fits:
                # Well-formed, but there is only one.
                continue
            more = {name: value}
            # Sessions that nobody opened are refused for another reason.
            if name == "SessionId" and fits:
                continue
            how = "sized" if operation == "InvokeEndpoint" else "chunked"
            if name == "ContentType":
                ask = lambda: getattr(lax, method)(
                    EndpointName="default", Body=b"x", CustomAttributes=how, ContentType=value
                )
            else:
                ask = lambda: call(method, how, b"x", client=lax, **more)
            message = refused(ask)
            member = name[0].lower() + name[1:]
            if fits:
                assert message is None, (operation, name, value, message)
            else:
                assert f"at '{member}' failed to satisfy constraint" in message, (name, value, message)
            checked += 1
assert checked > 60, checked
print("ok")
