// What an implementation computed and stored, sequence by sequence, until it is judged: the numbers
// that entered and left every step, and the bytes that its caches hold of every token.

#ifndef TOOLS_AGREE_RECORDER_H_
#define TOOLS_AGREE_RECORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "optimized/model/decoder.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/decoder.h"
#include "reference/spec/plan.h"

namespace kvcheck {

// The stored K or V of one layer: by plane and head, token after token.
struct StoredHistory {
  KvFormat format = PlainFormat{};
  Planes planes;
  std::array<std::vector<std::vector<std::byte>>, kMaxPlanes> bytes;  // [plane][head]
};

struct LayerRecord {
  // Of the tokens that are not judged yet, one row each; shapes as in DecoderLayerView.
  std::vector<float> x, q, k, v, out, mid, inner, next;
  StoredHistory k_stored, v_stored;  // of all tokens
};

struct SequenceRecord {
  int64_t first = 0;    // position of the first token that is not judged yet
  int64_t pending = 0;  // tokens that are not judged yet
  std::vector<LayerRecord> layers;
  std::vector<float> logits;  // (pending, vocabulary)
  Plan plan;                  // of attention over the pending tokens
  int64_t live_bytes = 0;     // of the row's caches when they were last seen
};

// Watches a decoder; the rows of the batch are the sequences. Columns of caches follow positions,
// as those of optimized/cache do: token p stands at column p modulo the columns there are. In a
// cache of another order the bytes of a token are another's, which fails.
class Recorder : public optimized::DecoderWatcher {
 public:
  Recorder(const DecoderConfig& config, int64_t rows, const Plan& otherwise);

  // The columns that the next call of the decoder is given. Shapes: positions (rows, columns).
  void Expect(std::span<const int64_t> positions, int64_t columns);
  void Layer(const optimized::DecoderLayerView& view) override;
  void Logits(std::span<const float> logits);
  SequenceRecord& row(int64_t index) { return rows_[static_cast<size_t>(index)]; }
  // Called with a row whose pending tokens were computed under another plan than those that come.
  void OnOtherPlan(std::function<void(int64_t)> judge) { judge_ = std::move(judge); }
  // What is pending has been judged.
  void Clear(int64_t index);

 private:
  const DecoderConfig& config_;
  Plan otherwise_;
  std::vector<SequenceRecord> rows_;
  std::span<const int64_t> positions_;
  int64_t columns_ = 0;
  std::function<void(int64_t)> judge_;
};

}  // namespace kvcheck

#endif  // TOOLS_AGREE_RECORDER_H_
