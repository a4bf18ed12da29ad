#include "tools/measure/format_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "reference/attention/definition.h"
#include "reference/formats/codec.h"
#include "reference/judge/ordered_parallel.h"
#include "reference/numerics/convert.h"
#include "reference/spec/token_groups.h"
#include "tools/measure/format_choice.h"

namespace kvcheck {
namespace {

constexpr int64_t kChunkTokens = 128;

// Rows [first, first + count) of a tensor, as a tensor.
Tensor RowsOf(const Tensor& tensor, int64_t first, int64_t count) {
  const int64_t dim = tensor.shape.RowLength();
  const size_t row_bytes = static_cast<size_t>(dim) * SizeInBytes(tensor.dtype);
  Tensor rows(tensor.dtype, {{"", count}, {"", dim}});
  const auto begin =
      tensor.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * row_bytes);
  std::copy_n(begin, rows.bytes.size(), rows.bytes.begin());
  return rows;
}

std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

// Tokens x of one head; of formats that group tokens whole groups, or what is left beside them, as
// a cache shows it.
DecodedRows RoundTrip(const KvFormat& format, const Profile& profile, Tensor x) {
  const int64_t group = TokenGroupOf(format);
  const int64_t tokens = x.shape.RowCount();
  if (tokens % group != 0) return RoundTrip(TokenFormatOf(format), profile, std::move(x));
  x.shape = {{"", tokens / group}, {"", group * x.shape.RowLength()}};
  const TensorMap planes = EncodeRows(format, profile, x);
  return DecodeRows(format, profile, CodecRows(format, planes), 0, x.shape.RowCount());
}

// Tokens that are stored at a time: whole groups until fewer than a group are left.
struct TokenChunks {
  TokenChunks(const KvFormat& format, int64_t all)
      : tokens(all),
        chunk(std::max(kChunkTokens, TokenGroupOf(format))),
        grouped(all / TokenGroupOf(format) * TokenGroupOf(format)) {}
  int64_t Count() const { return (grouped + chunk - 1) / chunk + (grouped < tokens ? 1 : 0); }
  int64_t First(int64_t i) const { return std::min(i * chunk, grouped); }
  int64_t Tokens(int64_t i) const {
    const int64_t end = First(i) < grouped ? std::min((i + 1) * chunk, grouped) : tokens;
    return end - First(i);
  }
  int64_t tokens, chunk, grouped;
};

// K or V of one head as it is stored, into the place of the original; its errors are added.
void StoreHead(const KvFormat& format, const FormatBenchQuestion& question, const Tensor& x,
               OperandRows* operand, ErrorSums* sums) {
  const TokenChunks chunks(format, x.shape.RowCount());
  const std::vector<double> original = std::move(operand->hi);
  operand->hi.clear();
  operand->lo.clear();
  OrderedParallelFor(
      chunks.Count(), question.threads,
      [&](int64_t chunk) {
        return RoundTrip(format, question.profile,
                         RowsOf(x, chunks.First(chunk), chunks.Tokens(chunk)));
      },
      [&](int64_t chunk, const DecodedRows& stored) {
        ErrorSums of_chunk;
        const auto at = static_cast<size_t>(chunks.First(chunk) * operand->dim);
        for (size_t i = 0; i < stored.hi.size(); ++i) {
          const double lo = stored.lo.empty() ? 0 : stored.lo[i];
          of_chunk.Add(original[at + i], stored.hi[i], (stored.hi[i] - original[at + i]) + lo);
        }
        sums->Add(of_chunk);
        operand->hi.insert(operand->hi.end(), stored.hi.begin(), stored.hi.end());
        // A chunk without low words among others that have them.
        if (!stored.lo.empty()) operand->lo.resize(at, 0.0);
        operand->lo.insert(operand->lo.end(), stored.lo.begin(), stored.lo.end());
      });
  if (!operand->lo.empty()) operand->lo.resize(operand->hi.size(), 0.0);
}

// Outputs (queries, Dv) of one head.
std::vector<double> Attend(const HeadData& head, const FormatBenchQuestion& question,
                           int64_t head_index) {
  std::vector<int32_t> keys(static_cast<size_t>(head.kv_len));
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<double> out;
  OrderedParallelFor(
      question.queries, question.threads,
      [&](int64_t i) {
        const std::vector<double> q =
            NormalRow(question.seed, "q", head_index * question.queries + i, head.k.dim);
        RowQuestion row;
        row.head = &head;
        row.q = q;
        row.keys = keys;
        row.scale = 1 / std::sqrt(static_cast<double>(head.k.dim));
        return Define<double>(row).o;
      },
      [&](int64_t, const std::vector<double>& o) { out.insert(out.end(), o.begin(), o.end()); });
  return out;
}

HeadData OriginalHead(const KvRows& rows, const Tensor& k, const Tensor& v) {
  HeadData head;
  head.kv_len = rows.tokens;
  head.k.dim = rows.KDim();
  head.v.dim = rows.VDim();
  head.k.hi = ValuesOf(k);
  head.v.hi = ValuesOf(v);
  return head;
}

}  // namespace

std::vector<FormatFigures> MeasureFormats(
    const FormatBenchQuestion& question, const Cancel& cancel, Progress* progress,
    const std::function<void(std::vector<FormatFigures>)>& so_far) {
  const KvRows& rows = question.rows;
  const auto k_elements = static_cast<double>(rows.KDim());
  const auto v_elements = static_cast<double>(rows.VDim());
  std::vector<FormatFigures> all;
  for (const KvFormat& format : question.formats) {
    for (const int64_t dim : {rows.KDim(), rows.VDim()}) {
      CheckHeadDim(format, StoredRowLength(format, dim), Print(format));
      CheckNeedsNoParameters(format, dim);
    }
    FormatFigures figures;
    figures.format = format;
    figures.bits = (BitsPerElement(format, rows.KDim()) * k_elements +
                    BitsPerElement(format, rows.VDim()) * v_elements) /
                   (k_elements + v_elements);
    all.push_back(figures);
  }
  const int64_t steps = std::ssize(all) * (rows.heads + (question.rounds > 0 ? 1 : 0));
  int64_t step = 0;
  const auto begin_step = [&](const char* what, const KvFormat& format) {
    cancel.ThrowIfRequested();
    ++step;
    if (progress != nullptr && progress->IsDue()) {
      progress->Show(fmt::format("{} of {}: {} of {}", step, steps, what, Print(format)));
    }
  };
  const auto end_step = [&] {
    if (!so_far) return;
    std::vector<FormatFigures> measured;
    std::copy_if(all.begin(), all.end(), std::back_inserter(measured),
                 [](const FormatFigures& figures) { return figures.heads > 0; });
    so_far(std::move(measured));
  };
  for (int64_t h = 0; h < rows.heads; ++h) {
    const Tensor k = RowsOf(rows.k, h * rows.tokens, rows.tokens);
    const Tensor v = RowsOf(rows.v, h * rows.tokens, rows.tokens);
    const HeadData original = OriginalHead(rows, k, v);
    const std::vector<double> expected = Attend(original, question, h);
    for (FormatFigures& figures : all) {
      begin_step("errors", figures.format);
      HeadData stored = original;
      StoreHead(figures.format, question, k, &stored.k, &figures.rows);
      StoreHead(figures.format, question, v, &stored.v, &figures.rows);
      const std::vector<double> got = Attend(stored, question, h);
      for (size_t i = 0; i < got.size(); ++i) figures.attention.Add(expected[i], got[i]);
      ++figures.heads;
      end_step();
    }
  }
  if (question.rounds == 0) return all;
  for (FormatFigures& figures : all) {
    begin_step("speed", figures.format);
    const int64_t length = StoredRowLength(figures.format, rows.KDim());
    if (!FollowsProfile(figures.format, question.profile, length)) continue;
    figures.speed = MeasureCodec(figures.format, rows.k.dtype, rows.k.bytes.data(),
                                 rows.k.ElementCount() / length, length, question.rounds);
    end_step();
  }
  return all;
}

}  // namespace kvcheck
