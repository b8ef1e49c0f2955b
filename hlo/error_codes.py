"""The error codes and what each means: the text of `hlo-opt explain CODE`."""

CODES: dict[str, str] = {
    "syntax": "The text does not follow the grammar. The caret stands at the first token that does "
    "not fit; the message names what was expected there.",
    "unknown-opcode": "No operation has this name. Opcodes are written in lower case with dashes; "
    "`hlo-opt --list-ops` prints them all.",
    "unknown-name": "An operand, a control predecessor or a computation is used that the text does "
    "not define before this place. HLO text has no forward references.",
    "duplicate-name": "A name is defined twice: instructions are unique in their computation, "
    "computations in their module.",
    "arity": "The operation takes another number of operands.",
    "attribute-missing": "The operation needs an attribute that is not written.",
    "attribute-unknown": "The operation has no attribute of this name.",
    "attribute-duplicate": "An attribute is written twice.",
    "attribute-value": "An attribute's value breaks one of the operation's constraints; "
    "`hlo-opt explain OPCODE` lists them with their labels.",
    "shape-mismatch": "The written shape is not the one that follows from the operands, or two "
    "shapes that have to be equal are not.",
    "dtype": "An element type is not one that the operation takes here.",
    "mixed-precision": "Operands have different floating types. HLO converts nothing by itself: "
    "write a convert.",
    "call-signature": "A called computation's parameters or result do not fit the call.",
    "recursion": "Computations call each other in a circle; HLO has no recursion.",
    "structure": "Instructions, computations or the module are put together in a way that no text "
    "can say: a missing root, an operand of another computation, parameters with gaps.",
    "literal": "A constant's value does not fit its shape or its element type.",
    "layout": "A layout does not describe the array's dimensions.",
    "schedule": "The module says is_scheduled=true, but its order is no schedule.",
    "aliasing": "Input/output aliasing or buffer donation names something that does not exist.",
    "sharding": "A sharding does not describe the array or the devices.",
    "async": "An asynchronous start, update and done do not fit each other.",
    "channel": "Send, recv or collective channels do not fit each other.",
    "deadlock": "Devices wait for each other in a circle, or for one that has ended.",
    "unsupported": "Valid HLO that this part of the tool does not handle; the message says which "
    "part, and what does.",
    "elided-constant": "The text holds constant({...}): its value was left out when it was "
    "printed. Give it made-up values with --fill-elided or hlo.fill_elided.",
    "arguments": "The values given to a program do not fit its parameters. Nothing is cast "
    "silently.",
    "comparison": "Two results cannot be compared: their structures or types differ.",
    "file": "A file cannot be read or written.",
    "pipeline": "The text of a pipeline is not understood.",
    "query": "The text of a query (hlo-opt query) is not understood; `hlo-opt query "
    "--list-properties` prints what can be asked.",
    "unknown-pass": "No pass or pipeline has this name; `hlo-opt --list-passes` prints them all.",
    "oracle": "XLA refuses the module, or its process ended.",
    "message": "A protocol buffer (binary, text or JSON) is malformed, or says what no module has.",
    "max-steps": "The interpreter reached the limit given with --max-steps.",
    "memory": "What a program makes does not fit into the memory that this process can have: the "
    "machine's, or less where limits are set (ulimit -v, a container's).",
    "limit": "The input is larger or nested deeper than the tool accepts. --max-input-size allows "
    "larger files.",
    "timeout": "A run took longer than timeout (--timeout) allows. Its arguments are as they were, "
    "but for those that were given away (donate), whose values are undefined; the executable can "
    "be called again.",
    "machine": "There is no such description of a machine (hlo-opt --list-machines), or code for "
    "it does not run here.",
    "forked": "The process was forked while another thread was inside LLVM or importing, and what "
    "that thread held stays held. Compile before the fork, or start processes by spawn or "
    "forkserver.",
}
