/* Softmax without Python:
     hlo-run compile ../softmax.hlo -o softmax.o --header=softmax.h
     cc -O2 softmax.c softmax.o -o softmax && ./softmax */
#include "softmax.h"

#include <stdio.h>

static _Alignas(SOFTMAX_ALIGNMENT) char arena[SOFTMAX_ARENA_BYTES];
static float x[SOFTMAX_INPUT_0_COUNT], result[SOFTMAX_OUTPUT_0_COUNT];

int main(void) {
  for (int k = 0; k < SOFTMAX_INPUT_0_COUNT; k++) x[k] = (float)(k % 7);
  int status = softmax_call(x, result, arena);
  if (status != SOFTMAX_OK) {
    fprintf(stderr, "softmax: %s\n", softmax_error_text(status));
    return 1;
  }
  double sum = 0;
  for (int k = 0; k < SOFTMAX_OUTPUT_0_COUNT; k++) sum += result[k];
  printf("first %.6f, sum of all rows %.3f\n", result[0], sum);
  return 0;
}
