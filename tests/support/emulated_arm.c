/* Runs a program's native entry on a table of addresses: what runtime/frames.py does on a machine
   that this process is not. stdin: `slots, arena bytes, head words, fixed places, blocks` as 64-bit
   words, the head, (slot, offset in the arena) of each place, (slot, bytes, of a result?, contents)
   of each block; stdout: the results' bytes. Runs are not stopped, and nobody else works for them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*kernel_t)(void *row, int64_t begin, int64_t end);
int32_t hlo_entry(void *frame);
__attribute__((weak)) int32_t hlo_fill(void *frame);
int32_t hlo_poll(void) { return 0; }
int32_t hlo_poll_step(void *frame) { return frame == NULL; }
void hlo_pieces(kernel_t kernel, void *row, int64_t begin, int64_t end) { kernel(row, begin, end); }

static void fill(void *to, uint64_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) exit(2);
}

static uint64_t word(void) {
    uint64_t found;
    fill(&found, 8);
    return found;
}

static char *memory(uint64_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }

int main(void) {
    uint64_t slots = word(), bytes = word(), heads = word(), places = word(), blocks = word();
    uint64_t *table = calloc(slots, 8), *sizes = calloc(blocks, 8);
    char *arena = memory(bytes), **results = calloc(blocks, sizeof(char *));
    for (uint64_t k = 0; k < bytes; k++) arena[k] = (char)0xff;
    fill(table, 8 * heads);
    for (uint64_t k = 0; k < places; k++) {
        uint64_t slot = word();
        table[slot] = (uint64_t)(arena + word());
    }
    for (uint64_t k = 0; k < blocks; k++) {
        uint64_t used = word(), size = word(), is_result = word();
        char *block = memory(size);
        fill(block, size);
        for (uint64_t n = 0; n < used; n++) table[word()] = (uint64_t)block;
        if (is_result) results[k] = block, sizes[k] = size;
    }
    if (hlo_fill) hlo_fill(NULL);
    int32_t status = hlo_entry(table);
    for (uint64_t k = 0; k < blocks; k++)
        if (results[k]) fwrite(results[k], 1, sizes[k], stdout);
    return status;
}
