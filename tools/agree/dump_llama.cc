// The base file of llama-perplexity: "_logits_", n_ctx, n_vocab, n_chunk (i32 each), the tokens
// (i32) of every chunk; then for each chunk and each of its positions from n_ctx / 2 to n_ctx - 2 a
// row of 2 ceil(n_vocab / 2) + 4 u16: scale and smallest log-probability as two f32, and n_vocab
// steps.
//
// Source: llama.cpp, tools/perplexity/perplexity.cpp (log_softmax, process_logits, perplexity).

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "golden/input_file.h"
#include "optimized/model/logits_pair.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"

namespace kvcheck {
namespace {

constexpr int64_t kHeaderBytes = 20;
constexpr int64_t kMost = int64_t{1} << 24;  // of n_ctx, n_vocab and n_chunk

class LlamaBase : public LogitsDump {
 public:
  explicit LlamaBase(const std::string& path) : LogitsDump(path), file_(path) {
    std::array<int32_t, 3> numbers{};
    if (file_.size() < kHeaderBytes) Refuse("it ends within its header");
    file_.ReadAt(8, numbers.data(), sizeof(numbers));
    context_ = numbers[0], vocabulary_ = numbers[1], chunks_ = numbers[2];
    for (const int64_t number : {context_, vocabulary_, chunks_}) {
      if (number < 1 || number > kMost) Refuse("its header is damaged");
    }
    first_ = context_ / 2;
    per_chunk_ = context_ - 1 - first_;
    if (per_chunk_ < 1) Refuse("a context of that length has no positions");
    row_words_ = 2 * ((vocabulary_ + 1) / 2) + 4;
    // Each factor is at most 2^24, so the chunk fits; their number is then compared by division.
    const int64_t chunk_bytes = per_chunk_ * row_words_ * 2;
    data_ = kHeaderBytes + chunks_ * context_ * 4;
    if (file_.size() < data_ || (file_.size() - data_) / chunk_bytes < chunks_) {
      Refuse(
          fmt::format("it holds less than the {} chunks that its header names: llama-perplexity "
                      "does not say when a write fails",
                      chunks_));
    }
    tokens_.resize(static_cast<size_t>(context_));
  }

  std::optional<int64_t> Positions() const override { return chunks_ * per_chunk_; }

  std::string Description() const override {
    return fmt::format("llama.cpp base, {} positions of {} tokens", chunks_ * per_chunk_,
                       vocabulary_);
  }

 protected:
  bool Next(TokenDistribution* position) override {
    if (at() == chunks_ * per_chunk_) {
      file_.ThrowIfChanged();
      return false;
    }
    const int64_t chunk = at() / per_chunk_;
    const int64_t row = at() % per_chunk_;
    if (chunk != chunk_of_tokens_) {
      chunk_of_tokens_ = chunk;
      file_.ReadAt(kHeaderBytes + chunk * context_ * 4, tokens_.data(),
                   tokens_.size() * sizeof(int32_t));
    }
    words_.resize(static_cast<size_t>(row_words_));
    file_.ReadAt(data_ + at() * row_words_ * 2, words_.data(), words_.size() * 2);
    float scale = 0;
    float least = 0;
    std::memcpy(&scale, words_.data(), 4);
    std::memcpy(&least, words_.data() + 2, 4);
    if (!(scale >= 0) || !std::isfinite(scale) || !std::isfinite(least)) {
      Refuse(fmt::format("position {} has a scale of {} and a smallest number of {}", at(), scale,
                         least));
    }
    const auto size = static_cast<size_t>(vocabulary_);
    position->complete = true;
    position->tokens.clear();
    position->log_p.resize(size);
    optimized::ScaleSteps(std::span(words_).subspan(4, size), static_cast<double>(scale),
                          static_cast<double>(least), position->log_p.data());
    // The nearest step; the row is computed in f32 (sums of magnitudes up to about 32, three
    // roundings).
    position->error = 0.5 * static_cast<double>(scale) + 3 * 0x1p-24 * 32;
    position->error_is_stated = false;
    position->shift = position->unit = position->least_unit = 0;
    position->unlisted = HUGE_VAL;
    // llama.cpp sums in double.
    position->rounding = position->sum_error = 0;
    // Step 0 also stands for everything below, but where all logits are the same.
    position->floor = scale > 0 ? static_cast<double>(least) : -HUGE_VAL;
    position->text.reset();
    position->next = tokens_[static_cast<size_t>(first_ + row + 1)];
    if (*position->next < 0 || *position->next >= vocabulary_) {
      Refuse(fmt::format("the token after position {} is {}, outside the vocabulary", at(),
                         *position->next));
    }
    return true;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, what, file_.path());
  }

  InputFile file_;
  int64_t context_ = 0, vocabulary_ = 0, chunks_ = 0;
  int64_t first_ = 0, per_chunk_ = 0, row_words_ = 0, data_ = 0;
  std::vector<int32_t> tokens_;  // of chunk_of_tokens_
  int64_t chunk_of_tokens_ = -1;
  std::vector<uint16_t> words_;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenLlamaBase(const std::string& path) {
  return std::make_unique<LlamaBase>(path);
}

}  // namespace kvcheck
