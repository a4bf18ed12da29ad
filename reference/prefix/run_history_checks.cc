// Of a history: hits, rows and counters against what the judge knows.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "reference/formats/error_bound.h"
#include "reference/numerics/convert.h"
#include "reference/prefix/name_row.h"
#include "reference/prefix/run_history.h"

namespace kvcheck {
namespace {

// Contents are at least 1 in every channel: rows of other signs differ by 2 and more there, and a
// bound below this tells them apart.
constexpr double kHalfOfTheirDistance = 1.0;

}  // namespace

bool HistoryRunner::HasShape(const PrefixVectors& vectors, int64_t count) const {
  return vectors.dtype == setup_.x && vectors.layers == setup_.layers &&
         vectors.kv_heads == setup_.kv_heads && vectors.tokens >= count &&
         vectors.k_dim == setup_.k_dim && vectors.v_dim == setup_.v_dim && vectors.k != nullptr &&
         vectors.v != nullptr;
}

bool HistoryRunner::IsWithinBound(const std::byte* want, const std::byte* got, TokenPart part) {
  const KvFormat format = part == TokenPart::kKey ? setup_.K() : setup_.V();
  const auto dim = static_cast<size_t>(ledger_.layout().Dim(part));
  std::vector<double> x(dim);
  std::vector<double> y(dim);
  DecodeBytes(want, setup_.x, x);
  DecodeBytes(got, setup_.x, y);
  const RowBound bound = RoundTripBound(format, capabilities_.profile, capabilities_.profile.decode,
                                        setup_.x, setup_.x, x);
  for (size_t i = 0; i < dim; ++i) {
    if (!(std::abs(y[i] - x[i]) <= bound.total[i])) return false;
    coarse_ = coarse_ || !(bound.total[i] < kHalfOfTheirDistance);
  }
  return true;
}

void HistoryRunner::CheckToken(int index, const NodePath& path, const PrefixRows& got,
                               int64_t count, int64_t token) {
  const RowLayout& layout = ledger_.layout();
  Request& request = At(index);
  const int32_t node = path[static_cast<size_t>(token)];
  const auto shown = request.shown.find(token);
  // A hit of the present operation may show what is stored in codes; later it stays as it is.
  const bool is_first = token < request.hit && shown == request.shown.end() &&
                        request.got_by[static_cast<size_t>(token)] == operation_;
  const bool is_coded = setup_.k.has_value() && is_first;
  bool differs = false;
  for (int64_t layer = 0; layer < layout.layers; ++layer) {
    const bool is_there = got.retained == nullptr || got.retained[layer * count + token] != 0;
    if (!is_there) {
      const bool needed = !setup_.HasWindow(layer) || token > count - setup_.window;
      if (needed) {
        return Fail(HistoryFault::kRowMissing,
                    fmt::format("{} tokens are there, and the row of position {} in layer {} is "
                                "not",
                                count, token, layer),
                    index);
      }
      continue;
    }
    ++result_.counts.rows;
    for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        const int64_t offset = layout.Offset(layer, head, part);
        const std::byte* want = shown != request.shown.end() ? shown->second.data() + offset
                                                             : ledger_.Content(node) + offset;
        const std::byte* vector = VectorAt(got.vectors, layer, head, token, part);
        const auto bytes = static_cast<size_t>(layout.VectorBytes(part));
        if (std::memcmp(want, vector, bytes) == 0) continue;
        if (is_coded && IsWithinBound(want, vector, part)) {
          differs = true;
          ++result_.counts.coded;
          continue;
        }
        const NamedRow named = NameRow(
            {node, layer, head, part, request.got_by[static_cast<size_t>(token)], vector}, ledger_);
        if (flipped_ && is_first && named.fault == HistoryFault::kDamaged) {
          differs = true;
          continue;
        }
        return Fail(named.fault, named.text, index);
      }
    }
  }
  if (!differs) return;
  Reach(HistoryProbe::kHitOfCodes, token == 0);
  std::vector<std::byte> bytes(static_cast<size_t>(layout.TokenBytes()));
  std::memcpy(bytes.data(), ledger_.Content(node), bytes.size());
  for (int64_t layer = 0; layer < layout.layers; ++layer) {
    if (got.retained != nullptr && got.retained[layer * count + token] == 0) continue;
    for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        std::memcpy(bytes.data() + layout.Offset(layer, head, part),
                    VectorAt(got.vectors, layer, head, token, part),
                    static_cast<size_t>(layout.VectorBytes(part)));
      }
    }
  }
  request.shown[token] = std::move(bytes);
}

void HistoryRunner::CheckRows(int request, const NodePath& path, const PrefixRows& got,
                              int64_t count) {
  if (options_.on_rows) options_.on_rows(got, count);
  if (count == 0) return;
  if (!HasShape(got.vectors, count)) {
    const PrefixVectors& shown = got.vectors;
    return Fail(HistoryFault::kShape,
                fmt::format("{} tokens in {} layers, {} heads, {} and {} channels of {} are shown, "
                            "not {} in {}, {}, {} and {} of {}",
                            shown.k == nullptr || shown.v == nullptr ? 0 : shown.tokens,
                            shown.layers, shown.kv_heads, shown.k_dim, shown.v_dim,
                            ShortName(shown.dtype), count, setup_.layers, setup_.kv_heads,
                            setup_.k_dim, setup_.v_dim, ShortName(setup_.x)),
                request);
  }
  for (int64_t token = 0; token < count && !failed(); ++token) {
    CheckToken(request, path, got, count, token);
  }
}

void HistoryRunner::CheckHit(const PrefixOp& op, Request* request, const PrefixHit& hit,
                             int64_t due, int64_t most) {
  const auto prompt = static_cast<int64_t>(request->prompt.size());
  if (hit.tokens < 0 || hit.tokens > prompt) {
    return Fail(HistoryFault::kHitTooLong,
                fmt::format("a hit of {} tokens of a prompt of {}", hit.tokens, prompt),
                op.request);
  }
  request->hit = hit.tokens;
  request->path.assign(request->prompt_path.begin(), request->prompt_path.begin() + hit.tokens);
  request->got_by.assign(static_cast<size_t>(hit.tokens), static_cast<int32_t>(operation_));
  // Rows first: whose they are says more than that they should not be there.
  CheckRows(op.request, request->path, hit.rows, hit.tokens);
  if (failed()) return;
  const int64_t allowed = ledger_.MostAllowed(prompt, op.all);
  if (hit.tokens > allowed) {
    return Fail(HistoryFault::kHitTooLong,
                fmt::format("a hit of all {} tokens, where the last one is to be computed", prompt),
                op.request);
  }
  if (hit.tokens > most) {
    return Fail(HistoryFault::kHitUnpublished,
                fmt::format("a hit of {} tokens, of which {} may hit: the others were not kept, or "
                            "forgotten since",
                            hit.tokens, most),
                op.request);
  }
  if (hit.tokens < due) {
    return Fail(HistoryFault::kHitMissing,
                fmt::format("a hit of {} tokens; {} were kept, and cannot have been evicted",
                            hit.tokens, due),
                op.request);
  }
  const bool may_be_shorter = last_open_ && last_open_->took_room && hit.tokens < last_open_->hit;
  if (last_open_ && last_open_->path == request->prompt_path && last_open_->all == op.all &&
      last_open_->hit != hit.tokens && !may_be_shorter &&
      !capabilities_.prefix_profile.fetch_takes) {
    return Fail(
        HistoryFault::kHitUnsteady,
        fmt::format("a hit of {} tokens, and of {} just before", hit.tokens, last_open_->hit),
        op.request);
  }
  ProbeOpen(*request, hit);
  if (hit.tokens == 0) return;
  ++result_.counts.hits;
  ++hits_;
  result_.counts.hit_tokens += hit.tokens;
  hit_tokens_ += hit.tokens;
  if (op.from && (!hit.tier_is_known || hit.tier != *op.from)) wrong_tier_ = true;
}

void HistoryRunner::CheckRead(int index) {
  Request& request = At(index);
  PrefixRows rows;
  const OpResult result = implementation_->Read(index, &rows);
  if (result.status == OpStatus::kUnsupported) {
    ids_known_ = false;
    return;
  }
  if (!result.ok()) {
    return Fail(HistoryFault::kRefused, fmt::format("a read is refused: {}", result.message),
                index);
  }
  ++result_.counts.reads;
  CheckRows(index, request.path, rows, std::ssize(request.path));
  if (rows.blocks.empty() && !request.path.empty()) ids_known_ = false;
  for (const int64_t id : rows.blocks) {
    if (id >= 0) ids_.push_back(id);
    shows_ids_ = true;
  }
}

void HistoryRunner::CheckState(const std::vector<int>& own) {
  ids_.clear();
  ids_known_ = true;
  for (int request = 0; request < kRequests && !failed(); ++request) {
    if (!At(request).open) continue;
    CheckRead(request);
    if (failed()) {
      result_.failure.held = std::find(own.begin(), own.end(), request) == own.end();
    }
  }
  if (!failed()) CheckCounters();
}

void HistoryRunner::CheckCounters() {
  constexpr int64_t kUnknown = PrefixCounters::kUnknown;
  PrefixCounters counters;
  implementation_->Observe(&counters);
  const int64_t slack = capabilities_.prefix_profile.slack;
  const bool knows_blocks = counters.blocks_total != kUnknown && counters.blocks_free != kUnknown &&
                            counters.blocks_cached != kUnknown && counters.blocks_held != kUnknown;
  if (knows_blocks && counters.blocks_free + counters.blocks_cached + counters.blocks_held !=
                          counters.blocks_total) {
    return Fail(
        HistoryFault::kBlocks,
        fmt::format("{} free, {} cached and {} held blocks are not {}", counters.blocks_free,
                    counters.blocks_cached, counters.blocks_held, counters.blocks_total));
  }
  for (const int64_t blocks :
       {counters.blocks_free, counters.blocks_cached, counters.blocks_held}) {
    if (blocks < kUnknown) return Fail(HistoryFault::kBlocks, fmt::format("{} blocks", blocks));
  }
  if (counters.blocks_held != kUnknown) {
    if (!AnyOpen() && counters.blocks_held != 0) {
      return Fail(HistoryFault::kBlocks,
                  fmt::format("no request is open, and {} blocks are held", counters.blocks_held));
    }
    std::sort(ids_.begin(), ids_.end());
    const auto distinct = std::unique(ids_.begin(), ids_.end()) - ids_.begin();
    if (AnyOpen() && ids_known_ && shows_ids_ && counters.blocks_held != distinct) {
      return Fail(HistoryFault::kBlocks,
                  fmt::format("requests have {} different blocks, and {} are held", distinct,
                              counters.blocks_held));
    }
  }
  if (counters.bytes != kUnknown && counters.budget_bytes != kUnknown) {
    const int64_t block_bytes = ledger_.layout().TokenBytes() * started_.block_tokens;
    if (counters.bytes > counters.budget_bytes + slack * block_bytes || counters.bytes < 0) {
      return Fail(HistoryFault::kOverBudget,
                  fmt::format("{} bytes of a budget of {}", counters.bytes, counters.budget_bytes));
    }
  }
  if (counters.entries != kUnknown && setup_.max_entries > 0 &&
      counters.entries > setup_.max_entries + slack) {
    return Fail(HistoryFault::kOverBudget,
                fmt::format("{} entries of at most {}", counters.entries, setup_.max_entries));
  }
  const auto check = [&](int64_t told, int64_t happened, std::string_view what) {
    if (told == kUnknown || told == happened) return;
    Fail(HistoryFault::kCounters,
         fmt::format("{} {} are told, {} there were", told, what, happened));
  };
  check(counters.lookups, opens_, "lookups");
  check(counters.hits, hits_, "hits");
  check(counters.hit_tokens, hit_tokens_, "hit tokens");
}

}  // namespace kvcheck
