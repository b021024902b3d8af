"""Where computations run: the device a user names, and the CPU for what is faster there."""

from typing import Any, NamedTuple

import jax

from itofit.errors import InputError

DEVICES = ("auto", "cpu", "gpu")


class Placement(NamedTuple):
    """A device, and a sentence for the user where it is not the one jax would take."""

    device: Any
    remark: str | None


def device_named(name: str) -> Any:
    """The device to run on: `auto` takes jax's default, `cpu` and `gpu` must exist."""
    if name not in DEVICES:
        raise InputError(expected="device to be auto, cpu or gpu", found=f"{name!r}", hint="auto")
    if name == "auto":
        return jax.devices()[0]
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        visible = ", ".join(str(device) for device in jax.devices())
        raise InputError(
            expected=f"a {name} that jax can see",
            found=visible,
            hint="pip install 'itofit[gpu]', or device='cpu'",
        ) from None


def placed(name: str, what: str, *, prefers_cpu: bool) -> Placement:
    """Where `what` runs: the device named, or with `auto` the one it is faster on."""
    device = device_named(name)
    if name != "auto" or not prefers_cpu or device.platform == "cpu":
        return Placement(device, None)
    cpu = processor()
    if cpu.platform != "cpu":
        return Placement(device, None)
    remark = (
        f"{what} runs on the CPU, where it is faster than on {device.device_kind}; "
        "device='gpu' would force it there"
    )
    return Placement(cpu, remark)


def processor() -> Any:
    """The CPU, where jax has been left one beside its accelerator; else the default device."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return jax.devices()[0]
