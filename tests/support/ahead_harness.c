/* Runs programs that were compiled ahead of time. stdin, as often as there is any: the program's
   number as a 64-bit word, the bytes of its inputs; stdout: the status as a 64-bit word, the bytes
   of its outputs. Each array and the arena end where a page begins that nobody may touch. */
#define _GNU_SOURCE
#include "ahead_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { UNWRITTEN = 0x55, UNREAD = 0xff };

static size_t page_bytes;

static char *guarded(size_t bytes, int content) {
    size_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    char *start = mmap(NULL, whole + page_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED || mprotect(start + whole, page_bytes, PROT_NONE)) exit(3);
    memset(start, content, whole);
    return start + whole - bytes;
}

static void release(char *memory, size_t bytes) {
    size_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    munmap(memory + bytes - whole, whole + page_bytes);
}

static int run(const struct program *p) {
    const void **inputs = calloc(p->inputs + 1, sizeof *inputs);
    char **copies = calloc(p->inputs + 1, sizeof *copies);
    void **outputs = calloc(p->outputs + 1, sizeof *outputs);
    for (size_t k = 0; k < p->inputs; k++) {
        size_t bytes = p->input_bytes[k];
        char *memory = guarded(bytes, UNWRITTEN);
        copies[k] = malloc(bytes + 1);
        if (fread(memory, 1, bytes, stdin) != bytes) exit(4);
        memcpy(copies[k], memory, bytes);
        inputs[k] = memory;
    }
    for (size_t k = 0; k < p->outputs; k++) outputs[k] = guarded(p->output_bytes[k], UNWRITTEN);
    char *arena = guarded(p->arena_bytes, UNREAD);
    int64_t status = p->call(inputs, outputs, arena);
    fwrite(&status, sizeof status, 1, stdout);
    for (size_t k = 0; k < p->outputs; k++) {
        fwrite(outputs[k], 1, p->output_bytes[k], stdout);
        release(outputs[k], p->output_bytes[k]);
    }
    for (size_t k = 0; k < p->inputs; k++) {
        if (memcmp(inputs[k], copies[k], p->input_bytes[k])) exit(5);
        release((char *)inputs[k], p->input_bytes[k]);
        free(copies[k]);
    }
    release(arena, p->arena_bytes);
    free(copies);
    free(outputs);
    free(inputs);
    return 0;
}

int main(void) {
    uint64_t number;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    while (fread(&number, sizeof number, 1, stdin) == 1) run(&programs[number]);
    return 0;
}
