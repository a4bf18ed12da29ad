#include "tools/measure/kv_cache_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "optimized/formats/row_codec.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/measure/bench_data.h"
#include "tools/measure/codec_speed.h"
#include "tools/measure/format_choice.h"

namespace kvcheck {
namespace {

// Rows that are drawn; a layer has them over and over, each time from another one on.
constexpr int64_t kDrawnRows = 4096;
constexpr int64_t kDecodedAtOnce = 64;  // tokens, where what is decoded is narrowed

// The drawn rows, of which row i of an operand of a layer is number (i + Offset) mod count.
class DrawnRows {
 public:
  DrawnRows(const KvCacheShape& shape, int64_t most_rows, uint64_t seed)
      : rows_(DrawRows(kNormalData, seed, "k", shape.dtype, std::min(kDrawnRows, most_rows),
                       shape.head_dim)),
        count_(rows_.shape.RowCount()),
        row_bytes_(static_cast<size_t>(shape.head_dim) * SizeInBytes(shape.dtype)) {}

  static int64_t Offset(int64_t layer, size_t operand) {
    return 1009 * (2 * layer + static_cast<int64_t>(operand));
  }
  const std::byte* Row(int64_t row) const {
    return rows_.bytes.data() + static_cast<size_t>(row % count_) * row_bytes_;
  }
  void Deal(int64_t first, int64_t count, std::byte* out) const {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + static_cast<size_t>(i) * row_bytes_, Row(first + i), row_bytes_);
    }
  }

 private:
  Tensor rows_;
  int64_t count_;
  size_t row_bytes_;
};

// Stored rows of K or V of one layer.
struct StoredOperand {
  std::vector<Pages> planes;
};

// One format over one shape. A row is what the format stores together: a token, or a group of them.
class LayerCodec {
 public:
  LayerCodec(const KvFormat& format, const KvCacheShape& shape, int64_t tokens)
      : format_(format),
        dtype_(shape.dtype),
        length_(StoredRowLength(format, shape.head_dim)),
        rows_(tokens * shape.head_dim / length_),
        decoded_at_once_(std::max<int64_t>(1, kDecodedAtOnce * shape.head_dim / length_)) {
    codec_.Start(format, dtype_, length_);
    narrow_.Start(PlainFormat{dtype_}, DType::kFloat32, length_);
    values_.resize(static_cast<size_t>(decoded_at_once_ * length_));
  }

  StoredOperand Allocate(HeldBytes* held) const {
    StoredOperand stored;
    for (const Plane& plane : PlanesOf(format_, length_)) {
      stored.planes.emplace_back(rows_ * static_cast<int64_t>(plane.Bytes()), held);
    }
    return stored;
  }

  void Quantize(const std::byte* original, const StoredOperand& stored) {
    std::vector<std::byte*> planes;
    for (const Pages& pages : stored.planes) planes.push_back(pages.data());
    codec_.Encode(original, RowBytes(), rows_, RowSpanOf<std::byte>(planes, codec_.bytes()));
  }

  // To the type of the original, without a whole layer of another type on the way.
  void Dequantize(const StoredOperand& stored, std::byte* out) {
    std::vector<const std::byte*> planes;
    for (const Pages& pages : stored.planes) planes.push_back(pages.data());
    const optimized::StoredRowsView all = RowSpanOf<const std::byte>(planes, codec_.bytes());
    if (!IsPlain(format_) && RowDType(format_) == dtype_) {
      codec_.DecodeToRowType(all, rows_, out);
      return;
    }
    if (dtype_ == DType::kFloat32) {
      codec_.Decode(all, rows_, reinterpret_cast<float*>(out));
      return;
    }
    for (int64_t first = 0; first < rows_; first += decoded_at_once_) {
      const int64_t count = std::min(decoded_at_once_, rows_ - first);
      codec_.Decode(From(all, first), count, values_.data());
      optimized::StoredRows to;
      to.codes = out + first * RowBytes();
      to.code_stride = RowBytes();
      narrow_.Encode(reinterpret_cast<const std::byte*>(values_.data()),
                     length_ * static_cast<int64_t>(sizeof(float)), count, to);
    }
  }

 private:
  int64_t RowBytes() const { return length_ * static_cast<int64_t>(SizeInBytes(dtype_)); }
  static optimized::StoredRowsView From(optimized::StoredRowsView rows, int64_t first) {
    rows.codes += first * rows.code_stride;
    if (rows.scales != nullptr) rows.scales += first * rows.scale_stride;
    if (rows.biases != nullptr) rows.biases += first * rows.scale_stride;
    return rows;
  }

  KvFormat format_;
  DType dtype_;
  int64_t length_;  // elements of a row
  int64_t rows_;    // of an operand
  int64_t decoded_at_once_;
  optimized::RowCodec codec_;
  optimized::RowCodec narrow_;
  std::vector<float> values_;
};

// |fetched - original| of the rows of an operand, which come in a plain type: their differences in
// double.
void AddErrors(const KvCacheShape& shape, const DrawnRows& drawn, int64_t first_row, int64_t rows,
               const std::byte* fetched, ErrorSums* sums) {
  optimized::RowCodec widen;
  widen.Start(PlainFormat{shape.dtype}, DType::kFloat32, shape.head_dim);
  const int64_t row_bytes = widen.bytes().codes;
  const auto dim = static_cast<size_t>(shape.head_dim);
  std::vector<float> original(dim), value(dim);
  const auto read = [&](const std::byte* row, std::vector<float>* out) {
    optimized::StoredRowsView view;
    view.codes = row;
    view.code_stride = row_bytes;
    widen.Decode(view, 1, out->data());
  };
  for (int64_t r = 0; r < rows; ++r) {
    read(drawn.Row(first_row + r), &original);
    read(fetched + r * row_bytes, &value);
    ErrorSums of_row;
    for (size_t i = 0; i < dim; ++i) of_row.Add(original[i], value[i]);
    sums->Add(of_row);
  }
}

struct RoundTimes {
  double quantize = 0;
  double dequantize = 0;
};

struct Times {
  std::vector<double> rounds;  // seconds of all layers
  std::vector<double> layers;  // of one, of all rounds

  template <typename Work>
  void Time(const Work& work) {
    const double start = ThreadSeconds();
    work();
    const double seconds = ThreadSeconds() - start;
    rounds.back() += seconds;
    layers.push_back(seconds);
  }
};

// One format and length.
class CacheBench {
 public:
  CacheBench(const KvCacheQuestion& question, const KvFormat& format, int64_t seq_len)
      : shape_(question.shape), rows_(shape_.kv_heads * seq_len), seed_(question.seed) {
    figures_.format = format;
    figures_.seq_len = seq_len;
    figures_.layer_bytes = shape_.LayerBytes(seq_len);
  }

  std::string Title() const {
    return fmt::format("{} tokens of {}", figures_.seq_len, Print(figures_.format));
  }
  // The whole original, stored layer by layer, then fetched layer by layer.
  void Round(const Cancel& cancel) {
    const DrawnRows drawn(shape_, rows_, seed_);
    LayerCodec codec(figures_.format, shape_, rows_);
    quantize_.rounds.push_back(0);
    dequantize_.rounds.push_back(0);
    const bool first = quantize_.rounds.size() == 1;
    ResidentPeak resident;
    resident.Restart();
    HeldBytes held;
    {
      std::vector<Operands> original = Originals(drawn, cancel, &held);
      figures_.original_bytes = held.now;
      const std::vector<StoredLayer> stored = Store(&codec, cancel, &original, &held);
      figures_.stored_bytes = BytesOf(stored);
      Fetch(&codec, drawn, stored, first, cancel, &held);
    }
    ++figures_.rounds;
    figures_.held_peak_bytes = std::max(figures_.held_peak_bytes, held.peak);
    const std::optional<int64_t> peak = resident.Bytes();
    if (peak) {
      figures_.resident_peak_bytes = std::max(figures_.resident_peak_bytes.value_or(0), *peak);
    }
  }

  bool HasFigures() const { return figures_.rounds > 0; }
  KvCacheFigures Figures() const {
    KvCacheFigures figures = figures_;
    const double token = 1e9 / static_cast<double>(figures.seq_len);
    figures.quantize_seconds = Median(quantize_.rounds);
    figures.dequantize_seconds = Median(dequantize_.rounds);
    figures.quantize_token_ns = Median(quantize_.layers) * token;
    figures.dequantize_token_ns = Median(dequantize_.layers) * token;
    return figures;
  }

 private:
  using Operands = std::array<Pages, 2>;  // K, V
  using StoredLayer = std::array<StoredOperand, 2>;

  Operands LayerPages(HeldBytes* held) const {
    const int64_t bytes = figures_.layer_bytes / 2;
    return {Pages(bytes, held), Pages(bytes, held)};
  }

  static int64_t BytesOf(const std::vector<StoredLayer>& stored) {
    int64_t bytes = 0;
    for (const StoredLayer& layer : stored) {
      for (const StoredOperand& operand : layer) {
        for (const Pages& pages : operand.planes) bytes += pages.bytes();
      }
    }
    return bytes;
  }

  std::vector<Operands> Originals(const DrawnRows& drawn, const Cancel& cancel,
                                  HeldBytes* held) const {
    std::vector<Operands> original;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      cancel.ThrowIfRequested();
      original.push_back(LayerPages(held));
      for (size_t i = 0; i < 2; ++i) {
        drawn.Deal(DrawnRows::Offset(layer, i), rows_, original.back()[i].data());
      }
    }
    return original;
  }

  std::vector<StoredLayer> Store(LayerCodec* codec, const Cancel& cancel,
                                 std::vector<Operands>* original, HeldBytes* held) {
    std::vector<StoredLayer> stored;
    for (Operands& layer : *original) {
      cancel.ThrowIfRequested();
      stored.push_back({codec->Allocate(held), codec->Allocate(held)});
      quantize_.Time([&] {
        for (size_t i = 0; i < 2; ++i) codec->Quantize(layer[i].data(), stored.back()[i]);
      });
      for (Pages& pages : layer) pages.Release();
    }
    return stored;
  }

  void Fetch(LayerCodec* codec, const DrawnRows& drawn, const std::vector<StoredLayer>& stored,
             bool measure_errors, const Cancel& cancel, HeldBytes* held) {
    const Operands fetched = LayerPages(held);
    for (size_t layer = 0; layer < stored.size(); ++layer) {
      cancel.ThrowIfRequested();
      dequantize_.Time([&] {
        for (size_t i = 0; i < 2; ++i) codec->Dequantize(stored[layer][i], fetched[i].data());
      });
      if (!measure_errors) continue;
      for (size_t i = 0; i < 2; ++i) {
        AddErrors(shape_, drawn, DrawnRows::Offset(static_cast<int64_t>(layer), i), rows_,
                  fetched[i].data(), &figures_.errors);
      }
    }
  }

  KvCacheShape shape_;
  int64_t rows_;  // of an operand of a layer
  uint64_t seed_;
  KvCacheFigures figures_;
  Times quantize_, dequantize_;
};

}  // namespace

std::vector<KvCacheFigures> MeasureKvCache(
    const KvCacheQuestion& question, const Cancel& cancel, Progress* progress,
    const std::function<void(std::vector<KvCacheFigures>)>& so_far) {
  const KvCacheShape& shape = question.shape;
  for (const KvFormat& format : question.formats) {
    CheckNeedsNoParameters(format, shape.head_dim);
    const double row_bytes =
        BitsPerElement(format, shape.head_dim) / 8 * static_cast<double>(shape.head_dim);
    for (const int64_t seq_len : question.seq_lens) {
      const auto layer =
          static_cast<double>(shape.LayerBytes(seq_len)) +
          2.0 * static_cast<double>(shape.kv_heads) * row_bytes * static_cast<double>(seq_len);
      CheckFitsMemory(layer * static_cast<double>(shape.layers),
                      fmt::format("{} tokens of {}", seq_len, Print(format)));
    }
  }
  std::vector<CacheBench> benches;
  for (const int64_t seq_len : question.seq_lens) {
    for (const KvFormat& format : question.formats) {
      benches.emplace_back(question, format, seq_len);
    }
  }
  const auto figures = [&] {
    std::vector<KvCacheFigures> all;
    for (const CacheBench& bench : benches) {
      if (bench.HasFigures()) all.push_back(bench.Figures());
    }
    return all;
  };
  // Rounds in turns: what disturbs the machine for a while disturbs all alike.
  for (int round = 0; round < question.rounds; ++round) {
    for (CacheBench& bench : benches) {
      if (progress != nullptr && progress->IsDue()) {
        const auto at = static_cast<int64_t>(&bench - benches.data());
        progress->Show(fmt::format(
            "{} of {}: round {} of {}, {}", round * std::ssize(benches) + at + 1,
            question.rounds * std::ssize(benches), round + 1, question.rounds, bench.Title()));
      }
      bench.Round(cancel);
      if (so_far) so_far(figures());
    }
  }
  return figures();
}

}  // namespace kvcheck
