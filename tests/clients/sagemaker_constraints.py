"""Every constraint of SageMaker's service model at its edges, sent by the AWS SDK with its own validation off.

What is expected is told by the service model in botocore and by Python's regular expressions, not by what the gateway
knows of them.

Usage: sagemaker_constraints.py CONTROL_URL [SEED]. Fails with a traceback; prints `ok` at the end.
"""

import concurrent.futures
import random
import re
import sys
import unicodedata

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
RANDOM = random.Random(SEED)
THREADS = 4
client = boto3.client(
    "sagemaker",
    endpoint_url=sys.argv[1],
    region_name="us-east-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
    config=Config(
        parameter_validation=False,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1},
    ),
)
RESOURCES = ["Model", "EndpointConfig", "Endpoint", "InferenceComponent"]
OPERATIONS = [f"{verb}{kind}" for kind in RESOURCES for verb in ("Create", "Describe", "Delete")]
OPERATIONS += [f"List{kind}s" for kind in RESOURCES]
OPERATIONS += ["UpdateEndpoint", "UpdateEndpointWeightsAndCapacities", "UpdateInferenceComponent"]
OPERATIONS += ["UpdateInferenceComponentRuntimeConfig", "AddTags", "ListTags", "DeleteTags"]

# One of them fits each pattern; the character before `~` can be repeated.
EXAMPLES = [
    "a~",
    "/a~",
    "a/a~",
    "s3://a~",
    "mig-1g.5gb+a~",
    "arn:aws:iam::123456789012:role/a~",
    "arn:aws:sns:us-east-1:123456789012:a~",
    "arn:aws:sagemaker:us-a~:123456789012:model/a",
    "arn:aws:sagemaker:us-east-1:123456789012:model/a~",
]
ALPHABET = "aZ09-_/.:+=@ #é\n"


def matches(pattern, text):
    if r"\p{" in pattern:
        assert pattern == r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", pattern
        return all(unicodedata.category(c)[0] in "LZN" or c in "_.:/=+-@" for c in text)
    return re.fullmatch(pattern, text, re.ASCII) is not None


def example(shape, length=None):
    """A text that fits the shape's pattern, of a length if it can have that."""
    pattern = shape.metadata.get("pattern", ".*")
    for text in EXAMPLES:
        start, end = text.split("~")
        wanted = length if length is not None else int(shape.metadata.get("min", 0))
        text = start + start[-1] * (wanted - len(start) - len(end)) + end
        if matches(pattern, text) and length in (None, len(text)):
            return text
    return None


def least(shape):
    """A value without anything that may be left out."""
    kind, minimum = shape.type_name, shape.metadata.get("min", 0)
    if kind == "structure":
        return {name: least(shape.members[name]) for name in shape.required_members}
    if kind == "list":
        return [least(shape.member) for _ in range(minimum)]
    if kind == "map":
        return {f"{least(shape.key)}{index}": least(shape.value) for index in range(minimum)}
    if kind == "string":
        return shape.enum[0] if shape.enum else example(shape)
    if kind in ("integer", "long", "float", "double"):
        return max(minimum, 1)
    return {"boolean": True, "timestamp": 1_700_000_000}[kind]


def variations(text, count):
    """Texts that differ from one in a character, or in all."""
    for _ in range(count):
        if RANDOM.random() < 0.3:
            yield "".join(RANDOM.choices(ALPHABET, k=RANDOM.randrange(8)))
        else:
            at = RANDOM.randrange(len(text))
            yield text[:at] + RANDOM.choice(ALPHABET) + text[at + RANDOM.randrange(2) :]


def cases(shape):
    """Values, each with where and why it is wrong: `None` for one that is right."""
    kind, facts = shape.type_name, shape.metadata
    minimum, maximum = facts.get("min"), facts.get("max")
    at_least = f"greater than or equal to {minimum}"
    at_most = f"less than or equal to {maximum}"
    yield least(shape), None
    if kind == "structure":
        for name, member in shape.members.items():
            path = name[0].lower() + name[1:]
            for value, wrong in cases(member):
                yield least(shape) | {name: value}, wrong and within(wrong, path)
            if name in shape.required_members:
                without = {key: value for key, value in least(shape).items() if key != name}
                yield without, (path, "Member must not be null")
    elif kind in ("list", "map"):

        def sized(size):
            if kind == "list":
                return [least(shape.member) for _ in range(size)]
            return {f"{least(shape.key)}{index}": least(shape.value) for index in range(size)}

        if minimum:
            yield sized(minimum), None
            yield sized(minimum - 1), ("", f"Member must have length {at_least}")
        if maximum is not None:
            yield sized(maximum), None
            yield sized(maximum + 1), ("", f"Member must have length {at_most}")
        if kind == "list":
            inner = shape.member.type_name in ("structure", "list", "map")
            for value, wrong in cases(shape.member):
                filled = [value] + sized(max(minimum or 0, 1))[1:]
                yield filled, wrong and within(wrong, "1.member" if inner else "")
        else:
            for value, wrong in cases(shape.key):
                yield {value: least(shape.value)}, wrong and within(wrong, "")
            for value, wrong in cases(shape.value):
                yield {least(shape.key): value}, wrong and within(wrong, "")
    elif kind == "string" and shape.enum:
        yield shape.enum[-1], None
        for value in ("", "NO_SUCH_VALUE", shape.enum[0].swapcase(), shape.enum[0] + " "):
            yield value, ("", "Member must satisfy enum value set: [")
    elif kind == "string":
        for length in (minimum, maximum):
            if length is not None and example(shape, length) is not None:
                yield example(shape, length), None
        if maximum is not None:
            longer = example(shape, maximum + 1) or "a" * (maximum + 1)
            yield longer, ("", f"Member must have length {at_most}")
        if minimum:
            yield "a" * (minimum - 1), ("", f"Member must have length {at_least}")
        if "pattern" in facts:
            pattern = facts["pattern"]
            says = f"Member must satisfy regular expression pattern: {pattern}"
            for text in variations(least(shape), 6):
                if (minimum or 0) <= len(text) <= (maximum or len(text)):
                    yield text, None if matches(pattern, text) else ("", says)
    elif kind in ("integer", "long", "float", "double"):
        step = 1 if kind in ("integer", "long") else 0.001
        if minimum is not None:
            yield minimum, None
            yield minimum - step, ("", f"Member must have value {at_least}")
        if maximum is not None:
            yield maximum, None
            yield maximum + step, ("", f"Member must have value {at_most}")


def within(wrong, outer):
    inner, why = wrong
    return ".".join(part for part in (outer, inner) if part), why


def check(case):
    operation, value, wrong = case
    try:
        getattr(client, xform_name(operation))(**value)
        code, message = None, ""
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    context = f"seed {SEED}: {operation} {value}: expected {wrong}, got {code}: {message}"
    if wrong is None:
        assert code in (None, "ValidationException", "ResourceLimitExceeded"), context
        assert "failed to satisfy constraint" not in message, context
    else:
        path, why = wrong
        assert code == "ValidationException", context
        assert f" at '{path}' failed to satisfy constraint: " in message and why in message, context


everything = [
    (operation, value, wrong)
    for operation in OPERATIONS
    for value, wrong in cases(client.meta.service_model.operation_model(operation).input_shape)
]
right = sum(wrong is None for _, _, wrong in everything)
print(f"{right} that are right, {len(everything) - right} that are wrong")
assert right > 800 and len(everything) - right > 800, right
with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
    for _ in pool.map(check, everything):
        pass
print("ok")
