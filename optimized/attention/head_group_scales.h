// Scales and biases of a block whose heads stand together in each token, head by head: turned once
// for all heads that go together, where a copy token by token would be made for each of them.

#ifndef OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_
#define OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

class HeadScales {
 public:
  // Of one head, the tokens of a block one after the other; null: they were not turned.
  struct Head {
    const std::byte* scales = nullptr;
    const std::byte* biases = nullptr;
  };

  // For what Take may need.
  void MakeRoom(int64_t heads);
  // Of kBlockTokens tokens from column `column` on, those of `heads` heads from `head` on; `bytes`:
  // of a token's scales of one head, 0 where there are none. None are turned where the heads do not
  // stand together or there is no kernel for them.
  void Take(const StoredHeads& from, int64_t head, int64_t heads, int64_t bytes, int64_t column,
            const AttentionKernels& kernels);
  // As if none had been turned.
  void Drop() { heads_ = 0; }
  // Head i of those that were asked for.
  Head Of(int64_t i) const;

 private:
  int64_t heads_ = 0;
  const float* scales_ = nullptr;  // and biases, words: (2, heads, kBlockTokens)
  std::vector<float> memory_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_
