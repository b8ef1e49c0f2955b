"""PrintOptions: every choice that XLA's HloPrintOptions has, its presets, and our own default."""

from __future__ import annotations

from msgspec import Struct


class PrintOptions(Struct, frozen=True):
    """What a module's text shows; field names are XLA's.

    PrintOptions() is our own form: XLA's default form with all constants in full, changed just
    where XLA's text does not read back to an equal module (`reads_back`).

    >>> module = hlo.parse("HloModule m ENTRY e { x = f32[] parameter(0) ROOT r = f32[] sine(x) }")
    >>> print(module.to_text(hlo.PrintOptions(print_percent=False)).splitlines()[-3])
      ROOT r = f32[] sine(x)
    """

    print_large_constants: bool = True
    print_only_essential_constants: bool = False
    print_subcomputation_bodies: bool = False
    print_metadata: bool = True
    print_backend_config: bool = True
    print_infeed_outfeed_config: bool = True
    print_operand_index_annotation_interval: int = 5
    compact_operands: bool = False
    include_layout_in_shapes: bool = True
    print_result_shape: bool = True
    print_operand_shape: bool = False
    print_operand_names: bool = True
    print_program_shape: bool = True
    print_percent: bool = True
    print_control_dependencies: bool = True
    canonicalize_instruction_names: bool = False
    canonicalize_computations: bool = False
    print_ids: bool = True
    print_extra_attributes: bool = True
    print_frontend_attributes: bool = True
    print_original_value: bool = True
    print_parameter_number: bool = True
    print_channel_id: bool = True
    print_full_replica_group_list: bool = False
    syntax_sugar_async_ops: bool = True
    is_in_nested_computation: bool = False
    indent_amount: int = 0
    reads_back: bool = True
    as_written: bool = False  # names and order as they are, which XLA's forms make unique and sort

    @staticmethod
    def xla_default() -> PrintOptions:
        """HloPrintOptions(): what XLA's dumps look like."""
        return PrintOptions(print_large_constants=False, reads_back=False)

    @staticmethod
    def short_parsable() -> PrintOptions:
        """HloPrintOptions.short_parsable(): no signatures, `%`, metadata or control dependences."""
        return PrintOptions(
            print_operand_index_annotation_interval=0,
            print_metadata=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            reads_back=False,
        )

    @staticmethod
    def canonical() -> PrintOptions:
        """HloPrintOptions.canonical(): names by position, called computations in full."""
        return PrintOptions(
            print_large_constants=False,
            print_subcomputation_bodies=True,
            print_metadata=False,
            print_backend_config=False,
            print_operand_index_annotation_interval=0,
            print_operand_shape=True,
            print_operand_names=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            canonicalize_instruction_names=True,
            reads_back=False,
        )

    @staticmethod
    def fingerprint() -> PrintOptions:
        """HloPrintOptions.fingerprint(): canonical without names, configs and most constants."""
        return PrintOptions(
            print_large_constants=False,
            print_only_essential_constants=True,
            print_subcomputation_bodies=True,
            print_metadata=False,
            print_backend_config=False,
            print_infeed_outfeed_config=False,
            print_operand_index_annotation_interval=0,
            print_operand_shape=True,
            print_operand_names=False,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            canonicalize_instruction_names=True,
            canonicalize_computations=True,
            print_ids=False,
            print_full_replica_group_list=True,
            reads_back=False,
        )
