#include "reference/attention/attention_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <span>
#include <utility>

#include "reference/attention/causes.h"
#include "reference/attention/completions.h"
#include "reference/attention/evaluate.h"
#include "reference/attention/other_readings.h"
#include "reference/attention/row_block.h"
#include "reference/attention/sensitivity.h"
#include "reference/attention/statistics.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows of a head that take part in the statistics, where all do not.
constexpr int64_t kRowsOfHead = 32;

enum Reason {
  kOverflow,
  kPaddingQuery,
  kNotFinite,
  kRange,
  kMaskedAny,
  kLseOfNothing,
  kOtherLseOfNothing,
  kFlushed,
  kHiddenByNumber
};

std::vector<std::string> Reasons() {
  return {"the output may overflow here",
          "query of a padding token",
          "a visible input is not finite",
          "the plan's own arithmetic may overflow, or its sums are too deep",
          "fully masked query, profile masked_row=any",
          std::string(kLseNotJudged),
          std::string(kLseOfOthers),
          "a subnormal result may be flushed to zero",
          "every key of the row is hidden by a large finite number, in whose rounding the scores "
          "are lost: give the mask as booleans or -inf, or state the profile masked_row=any"};
}

// A number that stands for -inf is no larger than this: no score of the query comes down to it, and
// a part with such a log-sum-exp has no weight in a merge. As for hidden keys (row_reference.cc).
double LargestLseOfNothing(const HeadData& head, std::span<const double> q, double scale) {
  double key = 0;
  for (const double sum : head.k_abs_sum) key = std::max(key, sum);
  double query = 0;
  for (const double value : q) query = std::max(query, std::fabs(value));
  const double lowest = -key * query * std::fabs(scale) - kVanishes;
  return std::isnan(lowest) ? -kInfinity : lowest;
}

// Of a query that sees no key: the logarithm of an empty sum. Merged with another part of the keys
// it weighs nothing. FlashAttention-2 has +inf there, PyTorch's CPU kernel 0, FlashInfer a low
// number, and the formula written out NaN where its output is NaN. The last alternative is the
// number, once it is known.
void ExpectLseOfNothing(size_t row, bool may_be_nan, ExpectedTile* lse) {
  lse->value[row] = -kInfinity;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double value : {0.0, may_be_nan ? nan : kInfinity, kInfinity}) {
    lse->alternatives.push_back({.element = static_cast<int64_t>(row),
                                 .value = value,
                                 .any = false,
                                 .reason = kOtherLseOfNothing});
  }
}

// largest: of such queries by their row in the tile.
void TakeLowNumbers(std::vector<std::pair<size_t, double>> largest, ExpectedTile* lse) {
  if (largest.empty()) return;
  lse->given = [largest = std::move(largest)](std::span<const double> got, ExpectedTile* tile) {
    size_t next = 0;
    for (Alternative& alternative : tile->alternatives) {
      const auto row = static_cast<size_t>(alternative.element);
      while (next < largest.size() && largest[next].first < row) ++next;
      if (next == largest.size()) return;
      const bool is_last = &alternative == &tile->alternatives.back() ||
                           (&alternative)[1].element != alternative.element;
      if (largest[next].first == row && is_last && got[row] <= largest[next].second) {
        alternative.value = got[row];
      }
    }
  };
}

}  // namespace

// What was made of the most recently used heads: of each once, whichever threads ask for it.
template <typename T>
class RecentHeads {
 public:
  explicit RecentHeads(size_t capacity) : capacity_(capacity) {}

  // Before the first head.
  void Hold(size_t capacity) { capacity_ = std::max(capacity_, capacity); }

  template <typename Make>
  std::shared_ptr<const T> Get(int64_t key, Make make) {
    std::shared_ptr<Entry> entry;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(entries_.begin(), entries_.end(),
                                      [&](const auto& one) { return one->key == key; });
      if (found != entries_.end()) {
        entry = *found;
        entries_.splice(entries_.begin(), entries_, found);
      } else {
        entry = std::make_shared<Entry>();
        entry->key = key;
        entries_.push_front(entry);
        if (entries_.size() > capacity_) entries_.pop_back();
      }
    }
    std::call_once(entry->once, [&] { entry->value = make(); });
    return entry->value;
  }

 private:
  struct Entry {
    int64_t key = 0;
    std::once_flag once;
    std::shared_ptr<const T> value;
  };
  size_t capacity_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_;
};

// A few, so that several threads work on neighbouring tiles; or as many as kBytes hold, for the
// other heads that the statistics read.
struct AttentionSource::HeadCache {
  static constexpr int64_t kBytes = int64_t{1} << 28;
  RecentHeads<HeadData> heads{2};  // of a thread that walks in order
};

struct AttentionSource::DeviceHeads {
  DeviceSums ask;
  RecentHeads<HeadSums> heads{3};
  // What the queries of a batch row see; of the one that was asked for last.
  std::mutex mutex;
  int64_t batch = -1;
  std::shared_ptr<const SeenColumns> seen;
};

AttentionSource::AttentionSource(const AttentionCase& c, const Profile& profile, const Plan& plan,
                                 const TensorMap& inputs, const AttentionSource* other)
    : case_(c),
      profile_(profile),
      arithmetic_(Resolve(plan, profile, c)),
      inputs_(inputs),
      mask_((CheckInputs(c, inputs), c), profile, inputs),
      rows_per_head_(c.query_heads / c.kv_heads * c.query_len),
      tiles_per_head_((rows_per_head_ + kRowsPerTile - 1) / kRowsPerTile),
      heads_(std::make_shared<HeadCache>()) {
  if (other != nullptr && HasHeadsOf(*other)) heads_ = other->heads_;
  // K twice, as rows and as tiles, and V.
  const double head_bytes = 8.0 * static_cast<double>(c.kv_len) *
                            (2 * static_cast<double>(c.k_dim) + static_cast<double>(c.v_dim));
  const auto fit = static_cast<int64_t>(std::min(64.0, HeadCache::kBytes / head_bytes));
  // In decoding each other head is read by one row, or by those of a head group.
  streams_other_heads_ = c.query_len == 1 && fit <= c.kv_heads;
  const int64_t few = streams_other_heads_ ? 2 : 4;
  heads_->heads.Hold(static_cast<size_t>(std::max(few, fit)));
  if (c.sinks) {
    const Tensor& sinks = Get(inputs, "sinks");
    sinks_.resize(static_cast<size_t>(sinks.ElementCount()));
    DecodeTo(sinks, 0, sinks_);
  }
  for (const auto& [name, spec] : OutputSpecs(c)) {
    OutputInfo info;
    info.name = name;
    info.dtype = spec.dtype;
    info.shape = spec.shape;
    info.row_length = name == "out" ? spec.shape.RowLength() : 1;
    info.reasons = Reasons();
    if (name == "out") {
      info.terms.assign(kBoundTermNames.begin(), kBoundTermNames.end());
      for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t h = 0; h < c.query_heads; ++h) {
          info.groups.push_back(fmt::format("b={} hq={}", b, h));
        }
      }
      for (const FaultDirection& direction : FaultDirections()) {
        info.directions.emplace_back(direction.name);
        info.hints.emplace_back(direction.hint);
      }
      info.per_unit_direction = kScaleDirection;
      info.varying_direction = kRowFactorDirection;
      outputs_.insert(outputs_.begin(), info);
    } else {
      outputs_.push_back(info);
    }
  }
}

AttentionSource::~AttentionSource() = default;

void AttentionSource::UseDevice(DeviceSums sums) {
  // Biases are of every query and key, and would have to be sent; so would codes, or what heads see
  // each by itself. Where queries are few every row is written out.
  const MaskSpec& mask = case_.mask;
  if (case_.alibi || mask.array == MaskArrayKind::kAdditive ||
      (mask.array != MaskArrayKind::kNone && mask.axes == MaskAxes::kBHLT) || !IsPlain(case_.k) ||
      !IsPlain(case_.v) || case_.query_len <= kRowsOfHead) {
    return;
  }
  device_ = std::make_shared<DeviceHeads>();
  device_->ask = std::move(sums);
}

std::shared_ptr<const HeadSums> AttentionSource::SumsOfHead(int64_t batch, int64_t kv_head,
                                                            const HeadData& head) const {
  if (device_ == nullptr || !HasEnclosures(head, arithmetic_)) return nullptr;
  return device_->heads.Get(batch * case_.kv_heads + kv_head,
                            [&] { return device_->ask(QuestionOfHead(batch, kv_head)); });
}

HeadQuestion AttentionSource::QuestionOfHead(int64_t batch, int64_t kv_head) const {
  HeadQuestion question;
  question.batch = batch;
  question.kv_head = kv_head;
  question.rows = rows_per_head_;
  question.channels = case_.v_dim;
  question.scale = case_.scale;
  question.softcap = case_.softcap.value_or(0);
  question.rounded = RoundedWeightsOf(arithmetic_);
  question.sinks = sinks_;
  const std::lock_guard lock(device_->mutex);
  if (device_->batch != batch) {
    device_->seen = std::make_shared<SeenColumns>(ColumnsSeen(batch));
    device_->batch = batch;
  }
  question.seen = device_->seen;
  return question;
}

SeenColumns AttentionSource::ColumnsSeen(int64_t batch) const {
  const auto queries = static_cast<size_t>(case_.query_len);
  const auto t = static_cast<size_t>(case_.kv_len);
  SeenColumns seen;
  seen.first.assign(queries, 0);
  seen.end.assign(queries, 0);
  const auto row = [&](size_t l) { return seen.visible.data() + l * t; };
  for (size_t l = 0; l < queries; ++l) {
    const VisibleSet visible = mask_.Visible({batch, 0, static_cast<int64_t>(l)});
    if (visible.kind != QueryKind::kOrdinary || visible.keys.empty()) continue;
    seen.first[l] = visible.keys.front();
    seen.end[l] = visible.keys.back() + 1;
    const auto range = static_cast<size_t>(seen.end[l] - seen.first[l]);
    if (seen.visible.empty()) {
      if (visible.keys.size() == range) continue;
      // The first with a gap: all before it see ranges.
      seen.visible.assign(queries * t, 0);
      for (size_t r = 0; r < l; ++r) {
        std::fill(row(r) + seen.first[r], row(r) + seen.end[r], uint8_t{1});
      }
    }
    for (const int32_t key : visible.keys) row(l)[key] = 1;
  }
  return seen;
}

bool AttentionSource::HasHeadsOf(const AttentionSource& other) const {
  const AttentionCase& c = other.case_;
  return &inputs_ == &other.inputs_ && profile_ == other.profile_ && case_.k == c.k &&
         case_.v == c.v && case_.q == c.q && case_.batch == c.batch &&
         case_.kv_heads == c.kv_heads && case_.kv_len == c.kv_len && case_.k_dim == c.k_dim &&
         case_.v_dim == c.v_dim && case_.against_original == c.against_original &&
         arithmetic_.Detail() == other.arithmetic_.Detail();
}

int64_t AttentionSource::TileCount() const {
  return case_.batch * case_.kv_heads * tiles_per_head_;
}

QueryIndex AttentionSource::RowAt(int64_t row) const {
  QueryIndex index;
  index.query = row % case_.query_len;
  index.query_head = row / case_.query_len % case_.query_heads;
  index.batch = row / case_.query_len / case_.query_heads;
  return index;
}

std::shared_ptr<const HeadData> AttentionSource::Head(int64_t batch, int64_t kv_head) const {
  return heads_->heads.Get(batch * case_.kv_heads + kv_head, [&] {
    return std::make_shared<const HeadData>(
        LoadHead(case_, profile_, inputs_, batch, kv_head, arithmetic_.Detail()));
  });
}

std::vector<double> AttentionSource::OutputOver(int64_t batch, int64_t kv_head,
                                                const RowQuestion& row) const {
  if (streams_other_heads_) {
    return OutputOverHead(case_, profile_, inputs_, batch, kv_head, row);
  }
  const auto head = Head(batch, kv_head);
  RowQuestion other = row;
  other.head = head.get();
  return Evaluate<double>(other).o;
}

bool AttentionSource::TakesStatistics(const QueryIndex& query, const TileRequest& request) const {
  if (!request.statistics) return false;
  return request.every_row || request.sample != nullptr || IsOneOfSome(query);
}

bool AttentionSource::IsOneOfSome(const QueryIndex& query) const {
  // The last of each of so many equal parts of a head's queries, so that a case of many rows costs
  // no more than one of some.
  const int64_t l = query.query;
  return l * kRowsOfHead / case_.query_len != (l + 1) * kRowsOfHead / case_.query_len;
}

RowContext AttentionSource::MakeContext(const QueryIndex& query, const HeadData& head,
                                        std::vector<double>* q) const {
  const int64_t row =
      (query.batch * case_.query_heads + query.query_head) * case_.query_len + query.query;
  q->resize(static_cast<size_t>(case_.k_dim));
  DecodeTo(Get(inputs_, "q"), row * case_.k_dim, *q);
  RowContext context;
  context.c = &case_;
  context.arithmetic = &arithmetic_;
  context.profile = profile_;
  context.head = &head;
  context.q = *q;
  context.has_sink = !sinks_.empty();
  if (context.has_sink) {
    context.sink = sinks_[static_cast<size_t>(query.query_head)];
    context.next_sink = sinks_[static_cast<size_t>((query.query_head + 1) % case_.query_heads)];
  }
  return context;
}

std::vector<uint8_t> AttentionSource::AcceptRows(const HeadData& head, const TileRequest& request,
                                                 std::vector<ExpectedTile>* tiles) const {
  // What is asked of a row beside its verdict needs the row written out.
  if (!request.accepts || request.terms || request.every_row || request.sample != nullptr ||
      request.precision != Precision::kDouble) {
    return {};
  }
  ExpectedTile& out = tiles->front();
  ExpectedTile* lse = tiles->size() > 1 ? &tiles->back() : nullptr;
  const auto count = static_cast<size_t>(out.row_count);
  std::vector<size_t> index;
  std::vector<std::vector<double>> q(count);
  std::vector<RowContext> contexts(count);
  std::vector<OwnedQuestion> owned(count);
  std::vector<BlockRow> rows;
  for (size_t r = 0; r < count; ++r) {
    const QueryIndex query = RowAt(out.first_row + static_cast<int64_t>(r));
    if (IsOneOfSome(query)) continue;
    contexts[r] = MakeContext(query, head, &q[r]);
    contexts[r].noise = request.noise;
    const VisibleSet visible = mask_.Visible(query);
    if (visible.kind != QueryKind::kOrdinary || !visible.hidden_keys.empty()) continue;
    if (MakeQuestion(contexts[r], visible, &owned[r]) != RowKind::kEvaluate) continue;
    index.push_back(r);
    rows.push_back({&contexts[r], &owned[r]});
  }
  std::vector<std::optional<RowSums>> given;
  const QueryIndex first = RowAt(out.first_row);
  const int64_t kv_head = first.query_head / (case_.query_heads / case_.kv_heads);
  const auto sums = rows.empty() ? nullptr : SumsOfHead(first.batch, kv_head, head);
  if (sums != nullptr) {
    const int64_t of_head = (first.batch * case_.kv_heads + kv_head) * rows_per_head_;
    for (const size_t r : index) {
      given.push_back(sums->Of(out.first_row + static_cast<int64_t>(r) - of_head));
    }
  }
  const std::vector<RowEnclosure> enclosures = EncloseRows(rows, given);
  const auto dv = static_cast<size_t>(case_.v_dim);
  std::vector<uint8_t> accepted(count, 0);
  std::vector<double> tolerance(dv);
  for (size_t i = 0; i < enclosures.size(); ++i) {
    const RowEnclosure& row = enclosures[i];
    if (!row.is_known) continue;
    const size_t r = index[i];
    const int64_t of_output = out.first_row + static_cast<int64_t>(r);
    for (size_t c = 0; c < dv; ++c) tolerance[c] = row.least[c] - row.own[c];
    if (!request.accepts(0, of_output, row.value, tolerance)) continue;
    if (lse != nullptr) {
      const double of_lse = row.lse_least - row.lse_own;
      if (!request.accepts(1, of_output, std::span(&row.lse, 1), std::span(&of_lse, 1))) continue;
      lse->value[r] = row.lse;
      lse->bound[r] = row.lse_least;
      lse->reference_bound[r] = row.lse_own;
      lse->mass[r] = 1 + std::fabs(row.lse);
      lse->accepted.resize(count);
      lse->accepted[r] = 1;
    }
    const auto at = static_cast<std::ptrdiff_t>(r * dv);
    std::copy(row.value.begin(), row.value.end(), out.value.begin() + at);
    std::copy(row.least.begin(), row.least.end(), out.bound.begin() + at);
    std::copy(row.own.begin(), row.own.end(), out.reference_bound.begin() + at);
    std::copy(row.mass.begin(), row.mass.end(), out.mass.begin() + at);
    if (request.noise) {
      std::copy(row.proven.begin(), row.proven.end(), out.proven_bound.begin() + at);
    }
    out.sensitivity[r] = Sensitivity::kShows;
    out.accepted.resize(count);
    out.accepted[r] = accepted[r] = 1;
  }
  return accepted;
}

std::vector<ExpectedTile> AttentionSource::Tiles(int64_t index, const TileRequest& request) const {
  const int64_t head_index = index / tiles_per_head_;
  const int64_t first = index % tiles_per_head_ * kRowsPerTile;
  const int64_t count = std::min(kRowsPerTile, rows_per_head_ - first);
  const int64_t first_row = head_index * rows_per_head_ + first;
  const auto dv = static_cast<size_t>(case_.v_dim);
  const auto rows = static_cast<size_t>(count);

  std::vector<ExpectedTile> tiles(outputs_.size());
  for (size_t i = 0; i < tiles.size(); ++i) {
    ExpectedTile& tile = tiles[i];
    tile.output = static_cast<int>(i);
    tile.first_row = first_row;
    tile.row_count = count;
    tile.precision = request.precision;
    const size_t elements = rows * static_cast<size_t>(outputs_[i].row_length);
    tile.value.assign(elements, 0);
    tile.value_lo.assign(elements, 0);
    tile.bound.assign(elements, 0);
    tile.reference_bound.assign(elements, 0);
    tile.mass.assign(elements, 0);
    tile.standing.assign(rows, Standing::kJudged);
    tile.standing_reason.assign(rows, 0);
    if (i == 0 && request.terms) {
      tile.terms.assign(kBoundTerms, std::vector<double>(elements, 0));
    }
  }
  ExpectedTile& out = tiles[0];
  ExpectedTile* lse = tiles.size() > 1 ? &tiles[1] : nullptr;
  const auto is_left_out = [&](size_t r) {
    return request.sample != nullptr &&
           !request.sample->HasInAny(first_row + static_cast<int64_t>(r));
  };
  size_t wanted = 0;
  for (size_t r = 0; r < rows; ++r) wanted += is_left_out(r) ? 0 : 1;
  if (wanted == 0) {
    for (ExpectedTile& tile : tiles) tile.standing.assign(rows, Standing::kLeftOut);
    return tiles;
  }
  out.group.resize(rows);
  out.sensitivity.assign(rows, Sensitivity::kNoInputs);
  if (request.noise) out.proven_bound.assign(rows * dv, 0);
  if (request.statistics) out.statistics = EmptyStatistics(rows, dv);

  const auto head = Head(head_index / case_.kv_heads, head_index % case_.kv_heads);
  const std::vector<uint8_t> accepted = AcceptRows(*head, request, &tiles);
  bool sampled = false;
  std::vector<std::pair<size_t, double>> low_lse;
  std::vector<double> q;
  for (size_t r = 0; r < rows; ++r) {
    const QueryIndex query = RowAt(first_row + static_cast<int64_t>(r));
    out.group[r] = static_cast<int>(query.batch * case_.query_heads + query.query_head);
    const auto set_standing = [&](Standing standing, Reason reason) {
      out.standing[r] = standing;
      out.standing_reason[r] = reason;
      if (lse != nullptr) lse->standing[r] = standing, lse->standing_reason[r] = reason;
    };
    if (is_left_out(r)) {
      set_standing(Standing::kLeftOut, kOverflow);
      continue;
    }
    if (!accepted.empty() && accepted[r] != 0) continue;
    RowContext context = MakeContext(query, *head, &q);
    context.noise = request.noise;
    context.statistics = TakesStatistics(query, request);
    OwnedQuestion owned;
    const VisibleSet visible = mask_.Visible(query);
    const RowKind kind = MakeQuestion(context, visible, &owned);
    if (kind == RowKind::kUnconstrained) {
      set_standing(Standing::kUnconstrained,
                   visible.kind == QueryKind::kPadding ? kPaddingQuery : kMaskedAny);
      continue;
    }
    if (kind == RowKind::kUndefined) {
      set_standing(Standing::kUndefined, kNotFinite);
      continue;
    }
    if (kind != RowKind::kEvaluate) {
      if (kind == RowKind::kNan) {
        std::fill_n(out.value.begin() + static_cast<std::ptrdiff_t>(r * dv), dv,
                    std::numeric_limits<double>::quiet_NaN());
      }
      const SinkLse sink = context.SeesSink() ? ComputeSinkLse(context) : SinkLse();
      if (sink.unbounded) {
        set_standing(Standing::kUnbounded, kRange);
        continue;
      }
      if (lse != nullptr && context.SeesSink()) {
        lse->value[r] = sink.value;
        lse->bound[r] = sink.bound;
        // The logit itself, or a quotient.
        if (case_.lse == LseKind::kBase2) {
          lse->reference_bound[r] = 0x1p-50 * std::fabs(lse->value[r]);
        }
        lse->mass[r] = 1 + std::fabs(lse->value[r]);
        // A sink that is disabled by the lowest number: in base 2 it is beyond all numbers.
        const double lowest = -FloatTypeOf(outputs_[1].dtype).largest_finite;
        if (lse->value[r] < lowest) {
          lse->alternatives.push_back({static_cast<int64_t>(r), lowest, false, kOverflow});
        }
        // The loss of the sink would show there.
        out.sensitivity[r] = Sensitivity::kShows;
      } else if (lse != nullptr) {
        ExpectLseOfNothing(r, kind == RowKind::kNan, lse);
        const double of_base = case_.lse == LseKind::kBase2 ? std::log(2.0) : 1;
        low_lse.emplace_back(r, LargestLseOfNothing(*head, context.q, case_.scale) / of_base);
      }
      // No fault of the list moves what sees no key: such rows take part with no effect.
      if (context.statistics) out.statistics->taken[r] = 1;
      continue;
    }
    const RowReference row = ComputeRow(context, owned, request.precision);
    if (!row.finite) {
      set_standing(Standing::kUndefined, kNotFinite);
      continue;
    }
    if (row.unbounded) {
      set_standing(Standing::kUnbounded, owned.hidden_by_number ? kHiddenByNumber : kRange);
      continue;
    }
    if (row.may_overflow) {
      for (ExpectedTile& tile : tiles) {
        tile.may_overflow.resize(rows);
        tile.may_overflow[r] = 1;
      }
    }
    double largest = FloatTypeOf(case_.out).largest_finite;
    if (arithmetic_.u_through > 0) {
      // The largest number of that type, as `out` has it.
      const double end = std::min(largest, FloatTypeOf(arithmetic_.through).largest_finite);
      largest = RoundTo(case_.out, end, {.rounding = Rounding::kTowardZero});
    }
    for (size_t c = 0; c < dv; ++c) {
      const ChannelReference& channel = row.channels[c];
      const size_t at = r * dv + c;
      if (channel.undefined) {
        out.undefined.resize(rows * dv);
        out.undefined[at] = 1;
        out.undefined_reason = kNotFinite;
        continue;
      }
      out.value[at] = channel.value;
      out.value_lo[at] = channel.value_lo;
      if (arithmetic_.saturates && std::fabs(channel.value) > largest) {
        out.value[at] = std::copysign(largest, channel.value);
        out.value_lo[at] = 0;
      }
      out.bound[at] = channel.bound;
      if (request.noise) out.proven_bound[at] = channel.proven_bound;
      out.reference_bound[at] = channel.reference_bound;
      out.mass[at] = channel.mass;
      for (size_t t = 0; t < out.terms.size(); ++t) out.terms[t][at] = channel.terms[t];
      if (!arithmetic_.saturates) {
        for (const double sign : {1.0, -1.0}) {
          if (sign * channel.value + channel.before_output + channel.reference_bound >=
              arithmetic_.overflow) {
            const auto element = static_cast<int64_t>(at);
            out.alternatives.push_back({element, sign * kInfinity, false, kOverflow});
            // Truncation stops at the largest finite value.
            if (arithmetic_.plan.op->toward_zero) {
              out.alternatives.push_back({element, sign * largest, false, kOverflow});
            }
          }
        }
      }
    }
    if (lse != nullptr && visible.kind == QueryKind::kFullyMasked && visible.hidden_keys.empty()) {
      // The mean of all keys: their scores are what the kernel has in place of -inf.
      lse->standing[r] = Standing::kUnconstrained;
      lse->standing_reason[r] = kLseOfNothing;
    } else if (lse != nullptr && !(std::isfinite(row.lse) && row.lse_bound < kInfinity)) {
      lse->standing[r] = Standing::kUnbounded;
      lse->standing_reason[r] = kRange;
    } else if (lse != nullptr) {
      lse->value[r] = row.lse;
      lse->value_lo[r] = row.lse_lo;
      lse->bound[r] = row.lse_bound;
      lse->reference_bound[r] = row.lse_reference_bound;
      lse->mass[r] = 1 + std::fabs(row.lse);
    }
    const RowSensitivity sensitivity = SensitivityOf(owned.question, row, !sampled);
    out.sensitivity[r] = sensitivity.kind;
    if (!sampled) out.detectable_share.push_back(sensitivity.share);
    sampled = true;
    if (std::all_of(row.channels.begin(), row.channels.end(),
                    [](const ChannelReference& channel) { return channel.undefined; })) {
      // V alone: lse is judged.
      out.standing[r] = Standing::kUndefined;
      out.standing_reason[r] = kNotFinite;
      std::fill_n(out.undefined.begin() + static_cast<std::ptrdiff_t>(r * dv), dv, uint8_t{0});
    }
    if (TakesStatistics(query, request)) {
      const auto other = OtherKvHead(case_, query.query_head);
      const std::vector<double> of_other =
          other ? OutputOver(query.batch, *other, owned.question) : std::vector<double>();
      AddRowStatistics(context, owned, row, of_other, r, &*out.statistics);
    }
  }
  if (lse != nullptr) TakeLowNumbers(std::move(low_lse), lse);
  return tiles;
}

std::vector<int64_t> AttentionSource::UnusualRows(int, int64_t most) const {
  // Queries looked at, each at the cost of its keys: those of one head where heads see the same.
  constexpr int64_t kMostKeys = int64_t{1} << 27;
  const bool by_head =
      case_.mask.array != MaskArrayKind::kNone && case_.mask.axes == MaskAxes::kBHLT;
  const int64_t heads = by_head ? case_.query_heads : 1;
  std::vector<int64_t> found;
  int64_t keys = 0;
  for (int64_t b = 0; b < case_.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      QueryKind before = QueryKind::kOrdinary;
      for (int64_t l = 0; l < case_.query_len && keys < kMostKeys; ++l, keys += case_.kv_len) {
        const QueryKind kind = mask_.Visible({b, h, l}).kind;
        const int64_t row = (b * case_.query_heads + h) * case_.query_len + l;
        if (l > 0 && kind != before) {
          if (before == QueryKind::kPadding) found.push_back(row - 1);
          found.push_back(row);
        } else if (kind == QueryKind::kFullyMasked) {
          found.push_back(row);
        }
        before = kind;
      }
    }
  }
  std::vector<int64_t> rows;
  const auto count = static_cast<int64_t>(found.size());
  const int64_t taken = std::min(count, most);
  for (int64_t i = 0; i < taken; ++i) {
    // Another head for each, where all see the same.
    const int64_t head = by_head ? 0 : i % case_.query_heads;
    rows.push_back(found[static_cast<size_t>(i * count / taken)] + head * case_.query_len);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<OtherReading> AttentionSource::OtherReadings(int output) const {
  return ReadingsOf({case_, profile_, arithmetic_, inputs_, *this},
                    outputs_[static_cast<size_t>(output)]);
}

std::shared_ptr<const SeenKeys> AttentionSource::Seen(int output, const RowsToExplain& rows) const {
  if (outputs_[static_cast<size_t>(output)].name != "out") return nullptr;
  const AskedRows asked = {
      case_, profile_, inputs_,
      mask_, sinks_,   [this](int64_t batch, int64_t kv_head) { return Head(batch, kv_head); }};
  return std::make_shared<SeenKeys>(FindCauses(asked, arithmetic_, rows));
}

std::vector<OtherReading> AttentionSource::Completions(int output, int64_t row,
                                                       std::span<const double> got) const {
  const QueryIndex query = RowAt(row);
  const auto head = Head(query.batch, query.query_head / (case_.query_heads / case_.kv_heads));
  std::vector<double> q(static_cast<size_t>(case_.k_dim));
  DecodeTo(Get(inputs_, "q"), row * case_.k_dim, q);
  return CompletionsOf({case_, profile_, arithmetic_, inputs_, *this},
                       outputs_[static_cast<size_t>(output)], {query, q, *head, got});
}

}  // namespace kvcheck
