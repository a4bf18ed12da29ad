// Of a history: which rare states it reaches (history_probes.h).

#include <algorithm>

#include "reference/prefix/run_history.h"

namespace kvcheck {

void HistoryRunner::ProbeBefore(const PrefixOp& op) {
  const bool is_empty = ledger_.kept().empty();
  const auto any_hit_held = [&] {
    return std::any_of(requests_.begin(), requests_.end(),
                       [](const Request& request) { return request.open && request.hit > 0; });
  };
  switch (op.kind) {
    case PrefixOpKind::kEvict:
      Reach(HistoryProbe::kEvictionWhileOpen, any_hit_held());
      break;
    case PrefixOpKind::kClear:
      Reach(HistoryProbe::kClearWhileOpen, AnyOpen());
      break;
    case PrefixOpKind::kEpoch:
      Reach(HistoryProbe::kEpochWhileOpen, AnyOpen());
      break;
    default:
      break;
  }
  const bool asks_of_store = op.kind == PrefixOpKind::kOpen || op.kind == PrefixOpKind::kEvict ||
                             op.kind == PrefixOpKind::kClear || op.kind == PrefixOpKind::kSave ||
                             op.kind == PrefixOpKind::kRestart;
  Reach(HistoryProbe::kEmptyStore, is_empty && asks_of_store);
}

void HistoryRunner::ProbeOpen(const Request& request, const PrefixHit& hit) {
  const NodePath& path = request.prompt_path;
  const auto prompt = static_cast<int64_t>(path.size());
  bool elsewhere = false;
  for (size_t who = 0; who < ledger_.IdentityCount(); ++who) {
    if (static_cast<int32_t>(who) == request.who_index) continue;
    const int32_t first = ledger_.FindChild(static_cast<int32_t>(who), -1, request.prompt[0]);
    elsewhere = elsewhere || (first >= 0 && ledger_.MostPublished({first}) > 0);
  }
  Reach(HistoryProbe::kPromptOfOtherIdentity, elsewhere && ledger_.MostPublished(path) == 0);
  const auto begins_with_any = [&](const std::vector<NodePath>& prompts) {
    // Of another epoch nodes differ: prompts are compared by their first token.
    return std::any_of(prompts.begin(), prompts.end(), [&](const NodePath& other) {
      return !other.empty() && ledger_.At(other[0]).token == request.prompt[0] &&
             ledger_.At(other[0]).who == request.who_index;
    });
  };
  const bool was_forgotten = begins_with_any(forgotten_);
  Reach(HistoryProbe::kOpenAfterClear, cleared_ && was_forgotten);
  Reach(HistoryProbe::kOpenAfterEpoch, forgot_by_epoch_ && was_forgotten);
  Reach(HistoryProbe::kClosedUnkept, begins_with_any(unkept_));
  Reach(HistoryProbe::kOpenAfterDamage, damaged_);
  int64_t held = 0;
  for (const Request& other : requests_) {
    if (!other.open || &other == &request) continue;
    const int64_t common = CommonTokens(other.path, path);
    held = std::max(held, common);
    Reach(HistoryProbe::kSplitUnderReader,
          common > 0 && common < std::ssize(other.path) && common < prompt);
  }
  for (const KeptPrompt& kept : ledger_.kept()) {
    const int64_t common = CommonTokens(kept.path, path);
    Reach(HistoryProbe::kHitInsideBlock,
          common % started_.block_tokens != 0 && common < prompt && common < std::ssize(kept.path));
  }
  if (hit.tokens == 0) return;
  Reach(HistoryProbe::kFullLengthHit, hit.tokens == prompt);
  const bool whole =
      std::any_of(ledger_.kept().begin(), ledger_.kept().end(), [&](const KeptPrompt& kept) {
        return CommonTokens(kept.path, path) == std::ssize(kept.path) &&
               std::ssize(kept.path) >= hit.tokens;
      });
  Reach(HistoryProbe::kHitOfLongerPrompt, !whole);
  Reach(HistoryProbe::kHitAfterRestart, restarted_ && !was_killed_);
  Reach(HistoryProbe::kHitAfterKill, restarted_ && was_killed_);
  Reach(HistoryProbe::kHitOfDisk, hit.tier_is_known && hit.tier == PrefixTier::kDisk);
  Reach(HistoryProbe::kHitUnderWindow, setup_.window > 0 && hit.tokens > setup_.window);
  Reach(HistoryProbe::kRevival, evicted_ && held == 0);
}

void HistoryRunner::ProbeWritten(const Request& request, int64_t from) {
  Reach(HistoryProbe::kChunkCutsBlock, request.cut && from > request.hit);
  Reach(HistoryProbe::kForkGoesOn, request.forked);
  // The block that begins last, kept by the same identity after another prefix.
  if (request.prompt_path.empty()) return;
  const int32_t last = request.prompt_path.back();
  const PrefixNode& node = ledger_.At(last);
  for (const KeptPrompt& kept : ledger_.kept()) {
    if (node.position >= std::ssize(kept.path)) continue;
    const int32_t other = kept.path[static_cast<size_t>(node.position)];
    const PrefixNode& its = ledger_.At(other);
    if (other == last || its.token != node.token || its.who != node.who) continue;
    // Alike over the length of a block.
    int32_t a = last;
    int32_t b = other;
    int64_t alike = 0;
    while (a >= 0 && b >= 0 && ledger_.At(a).token == ledger_.At(b).token) {
      a = ledger_.At(a).parent;
      b = ledger_.At(b).parent;
      ++alike;
    }
    Reach(HistoryProbe::kEqualBlockElsewhere, alike >= started_.block_tokens);
  }
}

void HistoryRunner::ProbeClosed(const Request& request, bool keep) {
  if (!keep && std::ssize(request.path) > request.hit) unkept_.push_back(request.path);
  if (!keep) return;
  Reach(HistoryProbe::kTrimThenKeep, request.trimmed);
  Reach(HistoryProbe::kKeptAcrossEpoch, request.epoch != ledger_.epoch());
  const bool twice = std::any_of(ledger_.kept().begin(), ledger_.kept().end(),
                                 [&](const KeptPrompt& kept) { return kept.path == request.path; });
  Reach(HistoryProbe::kPromptKeptTwice, twice && std::ssize(request.path) > request.hit);
}

}  // namespace kvcheck
