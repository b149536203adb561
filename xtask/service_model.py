"""Prints what the control API of SageMaker says of its operations, from the service model in botocore.

Names, types and constraints only. `cargo xtask service-model` keeps them in
router/src/aws/service/sagemaker.json.
"""

import json

import botocore.session

RESOURCES = ["Model", "EndpointConfig", "Endpoint", "InferenceComponent"]
OPERATIONS = (
    [f"{verb}{resource}" for resource in RESOURCES for verb in ("Create", "Describe", "Delete")]
    + [f"List{resource}s" for resource in RESOURCES]
    + ["UpdateEndpoint", "UpdateEndpointWeightsAndCapacities"]
    + ["UpdateInferenceComponent", "UpdateInferenceComponentRuntimeConfig"]
    + ["AddTags", "ListTags", "DeleteTags"]
)


def constraints(shape):
    """A shape without its prose; other shapes by name."""
    facts = {"type": shape["type"]}
    for name in ("required", "min", "max", "pattern", "enum"):
        if name in shape:
            facts[name] = shape[name]
    if "members" in shape:
        facts["members"] = {name: member["shape"] for name, member in shape["members"].items()}
    for name in ("member", "key", "value"):
        if name in shape:
            facts[name] = shape[name]["shape"]
    return facts


def refers_to(facts):
    yield from facts.get("members", {}).values()
    yield from (facts[name] for name in ("member", "key", "value") if name in facts)


def main():
    model = botocore.session.get_session().get_service_data("sagemaker")
    operations, shapes = {}, {}
    for name in sorted(OPERATIONS):
        said = model["operations"][name]
        facts = {side: said[side]["shape"] for side in ("input", "output") if side in said}
        facts["errors"] = [error["shape"] for error in said.get("errors", [])]
        operations[name] = facts
        wanted = [facts[side] for side in ("input", "output") if side in facts]
        while wanted:
            shape = wanted.pop()
            if shape not in shapes:
                shapes[shape] = constraints(model["shapes"][shape])
                wanted.extend(refers_to(shapes[shape]))

    # One line for each, so that a newer model shows as a small change.
    def lines(entries):
        return ",\n".join(f'  "{name}": {json.dumps(entries[name])}' for name in sorted(entries))

    metadata = model["metadata"]
    print("{")
    print(f'"apiVersion": "{metadata["apiVersion"]}",')
    print(f'"targetPrefix": "{metadata["targetPrefix"]}",')
    print(f'"jsonVersion": "{metadata["jsonVersion"]}",')
    print(f'"operations": {{\n{lines(operations)}\n}},')
    print(f'"shapes": {{\n{lines(shapes)}\n}}')
    print("}")


main()
