// Draws codec cases: every format, direction, type of rows and data regime, at sizes that keep a
// case small. What is drawn is a pure function of (seed, index) and the options.

#ifndef FUZZ_DRAW_CODEC_H_
#define FUZZ_DRAW_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/codec_space.h"

namespace kvcheck {

struct CodecDrawOptions {
  std::vector<KvFormat> formats;  // empty: all
  // What the implementation has; each case is drawn from one of them, by turns. Empty: everything.
  std::vector<CodecSpace> spaces{};
};

class CodecDrawer {
 public:
  // Errors: kUsage where no space has any of the formats, naming what there is.
  explicit CodecDrawer(const CodecDrawOptions& options = {});

  CodecCase Draw(uint64_t seed, uint64_t index) const;

 private:
  struct Space {
    std::vector<KvFormat> formats;
    std::vector<CodecDirection> directions;
    std::vector<DType> x;
  };
  std::vector<Space> spaces_;
};

}  // namespace kvcheck

#endif  // FUZZ_DRAW_CODEC_H_
