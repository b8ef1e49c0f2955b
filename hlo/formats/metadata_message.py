"""Where instructions come from, as messages in both directions: metadata, origins, stack frames."""

from __future__ import annotations

from hlo.attributes.metadata import Metadata
from hlo.attributes.origin import Origin, OriginalArray
from hlo.attributes.stack_frames import FRAME, LOCATION, FileLocation, StackFrame, StackFrames
from hlo.errors import HloError
from hlo.formats.message import Message

PLAIN = (
    "op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column",
    "source_end_column", "deduplicated_name", "scheduling_name", "stack_frame_id",
)  # fmt: skip


def metadata_message(metadata: Metadata) -> Message:
    """The message of a metadata."""
    made = Message("OpMetadata", **{key: getattr(metadata, key) for key in PLAIN})
    if metadata.profile_type:
        made["profile_type"] = list(metadata.profile_type)
    if metadata.metadata_payload is not None:
        payload = made.put("metadata_payload")
        payload["value"] = metadata.metadata_payload.encode("utf-8", "surrogateescape")
    return made


def metadata_of_message(message: Message) -> Metadata:
    """The metadata that a message says, as far as text has it."""
    fields = {key: message[key] for key in PLAIN}
    payload = message.child("metadata_payload")
    held = payload.text("value") if "value" in payload else None
    types = tuple(message.numbers("profile_type"))
    return Metadata(**fields, profile_type=types, metadata_payload=held)  # type: ignore[arg-type]  # by the schema


def origin_message(origin: Origin) -> Message:
    """The message of an origin: one element for each known leaf."""
    made = Message("OriginalValueProto", is_synthetic_call=origin.synthetic_call)
    pending: list[tuple[tuple[int, ...], object]] = [((), origin.tree)]
    while pending:
        path, tree = pending.pop()
        if isinstance(tree, tuple):
            pending += [((*path, k), part) for k, part in reversed(list(enumerate(tree)))]
        else:
            element = made.add("elements", shape_index=list(path))
            if isinstance(tree, OriginalArray):
                element["original_array"] = array_message(tree)
    return made


def array_message(array: OriginalArray) -> Message:
    """The message of one original array."""
    made = Message("OriginalArrayProto", instruction_name=array.name)
    made["shape_index"] = list(array.index)
    return made


def array_of(message: Message) -> OriginalArray:
    """The original array that a message says."""
    return OriginalArray(message.text("instruction_name"), tuple(message.numbers("shape_index")))


def origin_of(message: Message) -> Origin:
    """The origin that a message says. Raises HloError where its places are no tuples."""
    if message.flag("is_synthetic_call"):
        return Origin(synthetic_call=True)
    tree: list[object] = [()]
    for element in message.children("elements"):
        path = element.numbers("shape_index")
        leaf = array_of(element.child("original_array")) if "original_array" in element else None
        _place(tree, [0, *path], leaf)
    return Origin(_frozen(tree)[0])


def _place(nodes: list[object], path: list[int], leaf: OriginalArray | None) -> None:
    for k, index in enumerate(path):
        if not 0 <= index < 1 << 16 or len(path) > 100:
            raise HloError("message", f"an original value at {path[1:]}, expected a tuple's place")
        nodes += [()] * (index + 1 - len(nodes))
        if k == len(path) - 1:
            nodes[index] = leaf
            return
        below = nodes[index]
        if not isinstance(below, list):
            below = nodes[index] = []
        nodes = below


def _frozen(nodes: list[object]) -> tuple[object, ...]:
    """Calls itself for each level of tuples, of which there are 100."""
    return tuple(_frozen(n) if isinstance(n, list) else n for n in nodes)


def frames_message(frames: StackFrames) -> Message:
    """The message of the stack frame tables."""
    made = Message("StackFrameIndexProto")
    made["file_names"], made["function_names"] = (
        list(frames.file_names),
        list(frames.function_names),
    )
    for location in frames.locations:
        made.add("file_locations", **{key: getattr(location, key) for key in LOCATION})
    for frame in frames.frames:
        made.add("stack_frames", file_location_id=frame.location, parent_frame_id=frame.parent)
    return made


def frames_of(message: Message) -> StackFrames:
    """The tables that a message says; what points nowhere, printing and parsing find."""
    rows = [
        StackFrame(*(frame.number(key) for key in FRAME))
        for frame in message.children("stack_frames")
    ]
    return StackFrames(
        tuple(str(name) for name in message.numbers("file_names")),
        tuple(str(name) for name in message.numbers("function_names")),
        tuple(_location(row) for row in message.children("file_locations")),
        tuple(rows),
    )


def _location(row: Message) -> FileLocation:
    return FileLocation(*(row.number(key) for key in LOCATION))
