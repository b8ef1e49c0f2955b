/* Runs programs that were compiled ahead of time on a machine without a system. bare_jobs: as often
   as there is any, the program's number as a 64-bit word, the bytes of its inputs. What comes of
   them goes to the emulator's port as hexadecimal digits: the status as a 64-bit word, the bytes of
   its outputs. */
#include "ahead_harness.h"

enum { CONSOLE = 0xe9, POWER = 0x8900, UNWRITTEN = 0x55, UNREAD = 0xff, ALIGNMENT = 64 };

struct gate {
    uint16_t low, segment;
    uint8_t stack, type;
    uint16_t middle;
    uint32_t high, reserved;
};

extern const unsigned char bare_jobs[], bare_jobs_end[];
extern unsigned char bare_memory[];
extern const uint64_t bare_vectors[];
struct gate bare_gates[32];
static unsigned char *free_memory;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    while (bytes--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    if (t < f) return memcpy(to, from, bytes);
    while (bytes--) t[bytes] = f[bytes];
    return to;
}

void *memset(void *to, int content, size_t bytes) {
    unsigned char *t = to;
    while (bytes--) *t++ = (unsigned char)content;
    return to;
}

static void out(uint16_t port, char value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void say(const char *text) {
    while (*text) out(CONSOLE, *text++);
}

static void say_bytes(const void *bytes, size_t count) {
    const unsigned char *b = bytes;
    for (; count--; b++) {
        out(CONSOLE, "0123456789abcdef"[*b >> 4]);
        out(CONSOLE, "0123456789abcdef"[*b & 15]);
    }
}

static void end(void) {
    for (const char *word = "Shutdown"; *word; word++) out(POWER, *word);
    for (;;) __asm__ volatile("cli; hlt");
}

void bare_fault(uint64_t number, uint64_t first, uint64_t second) {
    const uint64_t words[] = {number, first, second};
    say(" fault ");
    say_bytes(words, sizeof words);
    say("\n");
    end();
}

static unsigned char *taken(size_t bytes, int content) {
    uintptr_t start = ((uintptr_t)free_memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    free_memory = (unsigned char *)start + bytes;
    return memset((void *)start, content, bytes);
}

static const unsigned char *run(const struct program *p, const unsigned char *given) {
    const void *inputs[256];
    void *outputs[256];
    free_memory = bare_memory;
    for (size_t k = 0; k < p->inputs; k++) {
        inputs[k] = memcpy(taken(p->input_bytes[k], UNWRITTEN), given, p->input_bytes[k]);
        given += p->input_bytes[k];
    }
    for (size_t k = 0; k < p->outputs; k++) outputs[k] = taken(p->output_bytes[k], UNWRITTEN);
    int64_t status = p->call(inputs, outputs, taken(p->arena_bytes, UNREAD));
    say_bytes(&status, sizeof status);
    for (size_t k = 0; k < p->outputs; k++) say_bytes(outputs[k], p->output_bytes[k]);
    return given;
}

void bare_main(void) {
    for (int n = 0; n < 32; n++) {
        uint64_t at = bare_vectors[n];
        bare_gates[n] = (struct gate){(uint16_t)at,         8, 0, 0x8e, (uint16_t)(at >> 16),
                                      (uint32_t)(at >> 32), 0};
    }
    say("\nbegin ");
    for (const unsigned char *at = bare_jobs; at != bare_jobs_end;) {
        uint64_t number;
        memcpy(&number, at, sizeof number);
        at = run(&programs[number], at + sizeof number);
    }
    say(" end\n");
    end();
}
