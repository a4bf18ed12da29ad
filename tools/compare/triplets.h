// How GOT may hold a tensor of GOLD in a coded format: as the planes of the format, of an affine
// one codes, scales and biases. GOLD's N is looked for, in this order, as
//
//   N_codes  N_scales  N_biases       each plane by its name; also with "." and "/" in place of "_"
//   N.0  N.1  N.2                     mlx-lm's prompt caches (save_prompt_cache)
//   P.weight  P.scales  P.biases      MLX's quantized layers, where N is P.weight; also with "/"
//   N_blocks                          the one plane of a ggml format; also with "." and "/"
//   N                                 the same, where it has the type of the plane
//
// always all planes and, but for P.weight and N, under names that GOLD does not have; where some of
// them are absent, or none is there, the pair says which. GOT's names are as GOLD spells them,
// after renames. Beside L.0 and L.1 (keys and values of layer L) in the form of mlx-lm stand L.3
// and L.4, int32 without axes: the group size and the bits of the layer's codes, which have to be
// those of the rule.

#ifndef TOOLS_COMPARE_TRIPLETS_H_
#define TOOLS_COMPARE_TRIPLETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "golden/file_index.h"
#include "reference/spec/tolerance.h"
#include "tools/compare/selection.h"

namespace kvcheck {

// Gives tensors of GOLD those of GOT that stand for them, which then are no pairs of their own,
// says of those for which not all planes are there what is missing (TensorPair::lacks), and marks
// what says the group size and the bits. format_of: the coded format that the rule of a path of
// GOLD names; nullopt: none.
void TakeTriplets(
    const FileIndex& gold, const FileIndex& got,
    const std::function<std::optional<KvFormat>(const std::string& gold_path)>& format_of,
    std::map<std::string, TensorPair>* pairs);

// What a file that lacks a tensor has in place of it, if it looks like a triplet: "; it has
// /w_codes,
// ...: if they stand for it, say of which format with --tol codec:FORMAT". Else "".
std::string TripletHint(const FileIndex& got, const std::string& name);

// The number that such a tensor has to hold under a rule; nullopt for rules that name no affine
// format.
std::optional<int64_t> StatedByRule(const ToleranceRule& rule, FormatField field);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_TRIPLETS_H_
