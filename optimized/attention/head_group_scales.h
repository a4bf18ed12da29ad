// Scales and biases of a block in a token-major layout, transposed to head-major once per head
// group, instead of gathered token by token for each head.

#ifndef OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_
#define OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

class HeadGroupScales {
 public:
  // One head's scales of a block, token after token; null: not transposed.
  struct Head {
    const std::byte* scales = nullptr;
    const std::byte* biases = nullptr;
  };

  // For what Take may need.
  void MakeRoom(int64_t heads);
  // Transposes those of kBlockTokens tokens from `column` on and of `heads` heads from `head` on.
  // bytes: a head's scales of one token; 0: none. Does nothing where heads do not adjoin or no
  // kernel has the shape.
  void Take(const StoredHeads& from, int64_t head, int64_t heads, int64_t bytes, int64_t column,
            const AttentionKernels& kernels);
  // Forgets what was transposed.
  void Drop() { heads_ = 0; }
  // Head i of the group.
  Head Of(int64_t i) const;

 private:
  int64_t heads_ = 0;
  const float* scales_ = nullptr;  // and biases, words: (2, heads, kBlockTokens)
  std::vector<float> memory_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_HEAD_GROUP_SCALES_H_
