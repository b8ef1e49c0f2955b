// Softmax for C++:
//   hlo-run compile ../softmax.hlo -o softmax.o --header=softmax.h --cpp-header=softmax.hpp
//   c++ -std=c++17 -O2 softmax.cc softmax.o -o softmax && ./softmax
#include "softmax.hpp"

#include <cstdio>
#include <numeric>
#include <vector>

int main() {
  std::vector<float> x(SOFTMAX_INPUT_0_COUNT), result(SOFTMAX_OUTPUT_0_COUNT);
  for (std::size_t k = 0; k < x.size(); k++) x[k] = static_cast<float>(k % 7);
  hlo_ahead::softmax softmax;
  softmax(x.data(), result.data());
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  std::printf("first %.6f, sum of all rows %.3f\n", result[0], sum);
}
