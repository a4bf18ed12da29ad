// Stored tensors under a codec rule: is got what a format keeps of the original? The original is
// read row by row from wherever it lies; a row is the last axis, whose extent the group of an
// affine format must divide. Two forms of got:
//
//   dequantised  a tensor of the original's shape, of any real type: within the bound of the round
//                trip (error_bound.h), to which a type that does not hold the row type adds its own
//                rounding.
//   triplet      codes u32 (..., W), scales and biases (..., G): what they stand for, under the
//   same
//                bound. Nobody has decoded them: unless the rule declares how they are read, they
//                mean the real numbers c S + B, which are judged to the nearest double (counted in
//                the bound). With codes=exact the three tensors are further outputs, which must
//                equal, bit for bit, what the declared encoder makes of the original; their claim
//                of conformance stands beside the other, so that a verdict says which of the two
//                failed.
//
// What a rule leaves out takes its loosest sound value and is listed as an assumption: decode the
// two roundings, encode the larger bound of both encoders, element by element.
//
// Infinity and NaN, by format: reference/formats/codec_source.h, round_trip.

#ifndef REFERENCE_FORMATS_STORED_CODEC_SOURCE_H_
#define REFERENCE_FORMATS_STORED_CODEC_SOURCE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/shape.h"
#include "reference/spec/tiles.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

// The format of a rule for an original of this type: an affine format that names no scale type
// takes the original's. Errors: kIllegalCase when the original is no f64, f32, f16 or bf16 tensor,
// or is to give the scale type and is f64; or when its rows are no rows of the format. context:
// where, for messages.
KvFormat FormatOf(const CodecRule& rule, const OutputInfo& original, const std::string& context);

// A dequantised tensor: one output, `result`, of type result_dtype and the original's shape.
// originals holds `original` and must outlive the source.
// Errors: as FormatOf; kMissingData when the original is absent; kIllegalCase for a result type
// that is not real, and for codes=exact, which needs the codes.
std::unique_ptr<ExpectedSource> MakeDequantisedSource(const CodecRule& rule,
                                                      const ObservedSource& originals,
                                                      const std::string& original,
                                                      const std::string& result,
                                                      DType result_dtype);

// The names of the planes' tensors, and of the output that they stand for.
struct TripletNames {
  std::string values;
  std::vector<std::string> planes;  // codes, scales, biases
};

// Why the three tensors cannot be the stored rows of an original of this shape: absent, of another
// type or shape than the format stores. nullopt when they can. A reason is a finding about got.
std::optional<std::string> TripletMismatch(const KvFormat& format, const Shape& original,
                                           const ObservedSource& observed,
                                           const TripletNames& names);

// Both sides of a triplet, for one call of the judge.
struct TripletComparison {
  std::unique_ptr<ExpectedSource> expected;
  std::unique_ptr<ObservedSource> observed;
};

// originals and observed must outlive the comparison. Precondition: no TripletMismatch.
// Errors: as MakeDequantisedSource; kIllegalCase for a plain format, which has no triplet.
TripletComparison MakeTripletComparison(const CodecRule& rule, const ObservedSource& originals,
                                        const std::string& original, const ObservedSource& observed,
                                        const TripletNames& names);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_STORED_CODEC_SOURCE_H_
