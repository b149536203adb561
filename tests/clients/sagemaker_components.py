"""Inference components by SageMaker's clients: the AWS CLI, boto3, the openai client with a token of sagemaker-core.

Usage: sagemaker_components.py CONTROL_URL RUNTIME_URL There are two hosts with two accelerators each. Nothing of the
clients is patched, but where the API is and who calls. Fails with a traceback; prints `ok` at the end.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

CONTROL, RUNTIME = sys.argv[1:]
REGION = "us-east-1"
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

os.environ["AWS_DATA_PATH"] = str(pathlib.Path(botocore.__file__).parent / "data")

ENDPOINT = "example-components"
sagemaker = boto3.client("sagemaker")
runtime = boto3.client("sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}))


def aws_json(*arguments):
    command = [pathlib.Path(sys.executable).parent / "aws", *arguments, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return json.loads(done.stdout) if done.stdout.strip() else {}


def wait(name, status="InService"):
    """boto3 has no waiters for components."""
    for _ in range(600):
        try:
            told = sagemaker.describe_inference_component(InferenceComponentName=name)
        except ClientError:
            assert status == "Deleted", name
            return
        if told["InferenceComponentStatus"] == status:
            return
        assert told["InferenceComponentStatus"] != "Failed", told
        time.sleep(0.1)
    raise AssertionError(f"{name} does not become {status}: {told}")


def copies(name):
    told = sagemaker.describe_inference_component(InferenceComponentName=name)
    config = told["RuntimeConfig"]
    return config["CurrentCopyCount"], config["DesiredCopyCount"]


def scale(name, count):
    sagemaker.update_inference_component_runtime_config(
        InferenceComponentName=name, DesiredRuntimeConfig={"CopyCount": count}
    )
    wait(name)
    assert copies(name) == (count, count), copies(name)


def invoke(component=None, **more):
    named = {"InferenceComponentName": component} if component else {}
    body = json.dumps({"answer": "it"})
    answer = runtime.invoke_endpoint(EndpointName=ENDPOINT, Body=body, **named, **more)
    assert answer["Body"].read() == b"it"
    assert answer["InvokedProductionVariant"] == "AllTraffic", answer
    return answer


def refused(says, *, component=None, **more):
    try:
        invoke(component, **more)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationError", error
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error.response
        assert says in error.response["Error"]["Message"], error
    else:
        raise AssertionError(f"not refused: {says}")


# === they are made ===

role = "arn:aws:iam::000000000000:role/Example"
for model in ("one", "two"):
    sagemaker.create_model(
        ModelName=model, ExecutionRoleArn=role, PrimaryContainer={"Image": "vllm/vllm-openai:latest"}
    )
sagemaker.create_endpoint_config(
    EndpointConfigName="components",
    ExecutionRoleArn=role,
    ProductionVariants=[
        {
            "VariantName": "AllTraffic",
            "InstanceType": "ml.p5.48xlarge",
            "InitialInstanceCount": 2,
            "RoutingConfig": {
                "RoutingStrategy": "PREFIX_AWARE",
                "PrefixAwareRoutingConfig": {"PrefixLength": 1024, "ConcurrencyThreshold": 10},
            },
        }
    ],
)
sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="components")
endpoint = sagemaker.get_waiter("endpoint_in_service")
endpoint.wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
refused("Inference Component Name header is required")
refused("Inference Component one of endpoint", component="one")


def specification(model):
    needs = {"NumberOfAcceleratorDevicesRequired": 1, "MinMemoryRequiredInMb": 1024}
    return {"ModelName": model, "ComputeResourceRequirements": needs}


made = aws_json(
    *["sagemaker", "create-inference-component", "--inference-component-name", "one"],
    *["--endpoint-name", ENDPOINT, "--variant-name", "AllTraffic"],
    *["--specification", json.dumps(specification("one")), "--runtime-config", "CopyCount=3"],
)
arn = f"arn:aws:sagemaker:{REGION}:000000000000:inference-component/one"
assert made == {"InferenceComponentArn": arn}, made
wait("one")
assert copies("one") == (3, 3)
# One accelerator is left.
sagemaker.create_inference_component(
    InferenceComponentName="two",
    EndpointName=ENDPOINT,
    VariantName="AllTraffic",
    Specification=specification("two"),
    RuntimeConfig={"CopyCount": 1},
)
wait("two")
listed = sagemaker.list_inference_components(EndpointNameEquals=ENDPOINT)["InferenceComponents"]
assert {it["InferenceComponentName"] for it in listed} == {"one", "two"}, listed

# === they are called ===

for name in ("one", "two"):
    answer = invoke(name, CustomAttributes="x=1")
    # The name reaches the instance.
    assert answer["CustomAttributes"] == f"seen x=1 for {name}", answer
    at = answer["ResponseMetadata"]["HTTPHeaders"]["x-atalho-instance"]
    assert f"#{name}." in at, at
refused("is on variant AllTraffic", component="one", TargetVariant="Other")
refused("Inference Component three of endpoint", component="three")
client = openai.OpenAI(
    base_url=f"{RUNTIME}/endpoints/{ENDPOINT}/inference-components/one/openai/v1",
    api_key=generate_token(region=REGION),
    max_retries=0,
)
asked = {"model": "", "messages": [{"role": "user", "content": "Why is the sky blue? " * 300}]}
answers = [client.chat.completions.with_raw_response.create(**asked) for _ in range(4)]
homes = {answer.headers["x-atalho-instance"] for answer in answers}
assert len(homes) == 1 and "#one." in homes.pop(), answers
with client.chat.completions.create(stream=True, **asked) as stream:
    words = [chunk.choices[0].delta.content for chunk in stream]
assert words == ["first", "second", "third"], words

# === they are scaled, changed and deleted ===

scale("one", 0)
refused("Inference Component has no capacity to process this request", component="one")
invoke("two")
scale("one", 2)
invoke("one")
sagemaker.update_inference_component(
    InferenceComponentName="two",
    Specification={"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 2048}},
    RuntimeConfig={"CopyCount": 2},
)
wait("two")
assert copies("two") == (2, 2)
try:
    sagemaker.delete_endpoint(EndpointName=ENDPOINT)
except ClientError as error:
    assert "hosts inference components" in error.response["Error"]["Message"], error
else:
    raise AssertionError("an endpoint with components is deleted")
for name in ("one", "two"):
    sagemaker.delete_inference_component(InferenceComponentName=name)
    wait(name, "Deleted")
    refused("not found", component=name)
sagemaker.delete_endpoint(EndpointName=ENDPOINT)
sagemaker.get_waiter("endpoint_deleted").wait(
    EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
)
print("ok")
