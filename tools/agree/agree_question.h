// What `kvcheck agree` is asked of a model, and the sequences that its text is cut into.

#ifndef TOOLS_AGREE_AGREE_QUESTION_H_
#define TOOLS_AGREE_AGREE_QUESTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "golden/decoder_file.h"
#include "tools/agree/path.h"

namespace kvcheck {

struct AgreeQuestion {
  DecoderFile model;
  std::string text_path;
  std::vector<int64_t> text;  // tokens
  std::vector<PathStorage> storages;
  int64_t batch = 1;       // rows of a batch, each a sequence, ragged
  int64_t context = 2048;  // tokens of the longest sequence, BOS included
  int64_t positions = 2048;
  int64_t chunk = 128;  // tokens of a prefill step
  int threads = 1;
  bool times = true;
};

// The tokens of a sequence, BOS first, and those that follow each of them.
struct TextWindow {
  std::vector<int64_t> tokens, next;
};
// Batches of sequences of `context` tokens and less and less (ragged), as many as hold at least
// `positions`; shorter ones where a single batch would hold more.
// Errors: kUsage for a batch, context or number of positions below 1; kSelection where the text is
// shorter than the positions that are asked for.
std::vector<TextWindow> WindowsOf(const AgreeQuestion& question);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_AGREE_QUESTION_H_
