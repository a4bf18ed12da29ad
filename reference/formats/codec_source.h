// What is expected of a codec case, as tiles. Encoding and decoding are claims of conformance: the
// values of the format's own arithmetic, bound 0, with an alternative wherever the format leaves an
// element open. A round trip is a claim of accuracy: the row itself, within the bound of
// error_bound.h.
//
//   encode      codes (u32 words or plain values), scales, biases. A word that holds the code of a
//               NaN element, or belongs to a group with an infinity, carries no meaning.
//   decode      y in the row type. Under decode=exact, which names a real number, y is that number
//               rounded once, and a zero has either sign. A format whose values are sums in f32
//               (turboquant) leaves their order open there: a claim of accuracy.
//   round_trip  y beside x. A row with NaN or infinity has no defined affine round trip; a row in
//               which c S + B may overflow has no bound; a plain format must return NaN, infinity
//               and what overflows as its rule says.

#ifndef REFERENCE_FORMATS_CODEC_SOURCE_H_
#define REFERENCE_FORMATS_CODEC_SOURCE_H_

#include <memory>

#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// `inputs` must outlive the source. Tiles are whole rows, of about 2^16 elements.
// Errors: kMissingData when the inputs are not those of the case.
std::unique_ptr<ExpectedSource> MakeCodecSource(const CodecCase& c, const Profile& profile,
                                                const TensorMap& inputs);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_CODEC_SOURCE_H_
