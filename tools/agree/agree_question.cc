#include "tools/agree/agree_question.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {

std::vector<TextWindow> WindowsOf(const AgreeQuestion& question) {
  if (question.batch < 1 || question.context < 1 || question.positions < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("batch {}, context {} and positions {} must each be at least 1",
                            question.batch, question.context, question.positions));
  }
  // Rows of a batch get shorter by an odd share of the context, so that padding ends anywhere.
  const auto length = [&](int64_t context, int64_t row) {
    const int64_t step = question.batch > 1 ? context / (3 * question.batch) | 1 : 0;
    return std::max<int64_t>(1, context - row * step);
  };
  const auto of_batch = [&](int64_t context) {
    int64_t sum = 0;
    for (int64_t row = 0; row < question.batch; ++row) sum += length(context, row);
    return sum;
  };
  int64_t context = question.context;
  if (of_batch(context) > question.positions) {
    context = std::max<int64_t>(1, question.positions / question.batch);
    while (of_batch(context) < question.positions) ++context;
  }
  const int64_t batches = (question.positions + of_batch(context) - 1) / of_batch(context);
  const auto text = static_cast<int64_t>(question.text.size());
  if (batches * of_batch(context) > text) {
    throw Error(ErrorCode::kSelection,
                fmt::format("the text has {} tokens, and {} positions need {}: ask for fewer, or "
                            "give a longer one",
                            text, question.positions, batches * of_batch(context)),
                question.text_path);
  }
  std::vector<TextWindow> windows;
  int64_t at = 0;
  for (int64_t i = 0; i < batches * question.batch; ++i) {
    TextWindow window;
    window.tokens.push_back(question.model.config.bos);
    for (const int64_t end = at + length(context, i % question.batch); at < end; ++at) {
      window.next.push_back(question.text[static_cast<size_t>(at)]);
      if (at + 1 < end) window.tokens.push_back(window.next.back());
    }
    windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace kvcheck
