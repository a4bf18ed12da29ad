// Which tensor of a file is meant by a tensor of a case: its own name, or one of those that
// libraries and people give it (query, key_states, attn_output, softmax_lse).

#ifndef TOOLS_COMPARE_TENSOR_ROLE_H_
#define TOOLS_COMPARE_TENSOR_ROLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "golden/file_index.h"

namespace kvcheck {

// The last part of a path: "/layers.3.query" and "/layers/3/query" are a query.
std::string_view LastPart(std::string_view path);

// True when the last part of the path is an other name of the case's tensor `name`, or its own name
// in other letters (Q).
bool IsOtherName(std::string_view path, std::string_view name);

// The datasets of the file that may be meant by `name`, other names included. Where several of
// these are, those that have as many elements alone.
std::vector<std::string> DatasetsMeantBy(const FileIndex& index, std::string_view name,
                                         int64_t elements);

// For a tensor that is not found: what the file has, and which of it may be meant. taken: datasets
// that are other tensors of the case.
// "present: /a float32 2x3, /b ...; did you mean --map q=/a?"
std::string PresentText(const FileIndex& index, std::string_view name, int64_t elements,
                        const std::vector<std::string>& taken);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_TENSOR_ROLE_H_
