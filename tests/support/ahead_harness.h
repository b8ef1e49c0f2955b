/* What the harness knows of a program; the table of programs is generated. */
#include <stddef.h>
#include <stdint.h>

struct program {
    int (*call)(const void *const *inputs, void *const *outputs, void *arena);
    size_t inputs, outputs, arena_bytes;
    const size_t *input_bytes, *output_bytes;
};

extern const struct program programs[];
