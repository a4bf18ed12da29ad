// A text as token ids, as the tokenizer of a model makes them.

#ifndef TOOLS_AGREE_TOKEN_IDS_H_
#define TOOLS_AGREE_TOKEN_IDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kvcheck {

// A JSON list of whole numbers, or an object whose "input_ids" is one (or holds a single one), as
// tokenizers of transformers return it; whole numbers with white space or commas between them; or
// a file of tensors (golden/tensor_file.h): its only one, `tokens` or `input_ids`, of i32 or i64.
// Errors: kUnreadableFile for what is none of these; kIllegalCase for an id outside
// [0, vocabulary); kSelection for none.
std::vector<int64_t> ReadTokenIds(const std::string& path, int64_t vocabulary);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_TOKEN_IDS_H_
