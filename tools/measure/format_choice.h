// Which formats a measurement is about.

#ifndef TOOLS_MEASURE_FORMAT_CHOICE_H_
#define TOOLS_MEASURE_FORMAT_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/kv_format.h"

namespace kvcheck {

// Stored bits of a row, metadata among them, per channel. Parameters that are stored once for all
// rows are no part of a row. Precondition: FitsHeadDim.
double BitsPerElement(const KvFormat& format, int64_t head_dim);

// Whether the format has parameters that are data of a model (a codebook, a scale of the tensor),
// without which no row can be stored.
bool NeedsParameters(const KvFormat& format, int64_t head_dim);
// Errors: kUnsupported where it does.
void CheckNeedsNoParameters(const KvFormat& format, int64_t head_dim);

// Of texts ("affine:4:g64:f16"), patterns ("affine:4:*") or nothing, each format once, in the
// order asked. A pattern means the formats of AllKvFormats() whose rows can have head_dim channels
// and that need no parameters. Nothing means a list that has every family: of each kind and row
// type the format whose block is nearest to 64 channels, without those of more than 32 bits.
// Errors: kParse for what is no format; kIllegalCase for a format whose blocks do not fit head_dim;
// kUnsupported for one that needs parameters; kSelection for a pattern without a format.
std::vector<KvFormat> ChooseFormats(const std::vector<std::string>& asked, int64_t head_dim);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_FORMAT_CHOICE_H_
