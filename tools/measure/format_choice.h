// Which formats a measurement is about.

#ifndef TOOLS_MEASURE_FORMAT_CHOICE_H_
#define TOOLS_MEASURE_FORMAT_CHOICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/spec/kv_format.h"

namespace kvcheck {

// Elements of a stored row of vectors of head_dim channels: of formats that group tokens a row is a
// group.
int64_t StoredRowLength(const KvFormat& format, int64_t head_dim);

// Stored bits of a row, metadata among them, per channel. Parameters that are stored once for all
// rows are no part of a row. Precondition: StoredRowLength consists of whole blocks.
double BitsPerElement(const KvFormat& format, int64_t head_dim);

// Whether the format has parameters that are data of a model (a codebook, a scale of the tensor),
// without which no row can be stored.
bool NeedsParameters(const KvFormat& format, int64_t head_dim);
// Errors: kUnsupported where it does.
void CheckNeedsNoParameters(const KvFormat& format, int64_t head_dim);

// Whether tokens are measured that groups of so many are made of.
using HasGroups = std::function<bool(int64_t group_tokens)>;
inline bool SingleTokens(int64_t group_tokens) { return group_tokens == 1; }

// Of texts ("affine:4:g64:f16"), patterns ("affine:4:*") or nothing, each format once, in the
// order asked. A pattern means the formats of AllKvFormats() whose rows can have head_dim channels,
// whose groups there are and that need no parameters. Nothing means a list that has every family:
// of each kind and row type the format whose block is nearest to 64 channels, without those of more
// than 32 bits. Errors: kParse for what is no format; kIllegalCase for a format whose blocks do not
// fit head_dim; kUnsupported for one that needs parameters or other groups; kSelection for a
// pattern without a format.
std::vector<KvFormat> ChooseFormats(const std::vector<std::string>& asked, int64_t head_dim,
                                    const HasGroups& has_groups = SingleTokens);

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_FORMAT_CHOICE_H_
