// What an implementation of codecs has, as far as drawing cases needs to know it. What a space does
// not say is there.

#ifndef REFERENCE_SPEC_CODEC_SPACE_H_
#define REFERENCE_SPEC_CODEC_SPACE_H_

#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

struct CodecSpace {
  std::vector<std::string> formats;  // patterns (glob.h) over their texts; empty: every one
  std::vector<CodecDirection> directions;  // empty: every one
  std::vector<DType> x;                    // types of rows; empty: every one

  // Whether the case is one of them.
  bool Has(const CodecCase& c) const;
  bool operator==(const CodecSpace&) const = default;
};

// For messages: "formats affine:4:*; directions encode; x f32". "everything" where nothing is left
// out.
std::string Describe(const CodecSpace& space);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CODEC_SPACE_H_
