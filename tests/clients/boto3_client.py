"""What programs do with the AWS SDK's runtime client, against a gateway in front of simulated engines.

Usage: boto3_client.py URL. Fails with a traceback; prints `ok` at the end.
"""

import json
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

client = boto3.client(
    "sagemaker-runtime",
    endpoint_url=sys.argv[1],
    region_name="eu-west-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
    config=Config(retries={"total_max_attempts": 1}),
)


def invoke(endpoint, prompt, **more):
    body = json.dumps(
        {"messages": [{"role": "user", "content": "Be brief. " * 500 + prompt}], "max_tokens": 8}
    )
    return client.invoke_endpoint(
        EndpointName=endpoint, Body=body, ContentType="application/json", **more
    )


def instance(response):
    return response["ResponseMetadata"]["HTTPHeaders"]["x-atalho-instance"]


first, second = invoke("default", "Why?"), invoke("default", "How?")
assert instance(first) == instance(second), "equal beginnings meet"
assert json.loads(first["Body"].read())["choices"], "an answer"
second["Body"].read()
invoke("default", "Why?", TargetVariant="default")["Body"].read()

for endpoint, more, status in [
    ("nowhere", {}, 400),
    ("default", {"TargetVariant": "nowhere"}, 400),
]:
    try:
        invoke(endpoint, "Why?", **more)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == status, error.response
        assert error.response["Error"]["Message"], error.response
    else:
        raise AssertionError(f"no error for {endpoint} {more}")
print("ok")
