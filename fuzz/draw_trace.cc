#include "fuzz/draw_trace.h"

#include <algorithm>
#include <utility>

#include "fuzz/trace_draft.h"

namespace kvcheck {

TraceDrawer::TraceDrawer(const TraceDrawOptions& options)
    : draft_(std::make_unique<Draft>(ReadSpaces(options))) {}

TraceDrawer::~TraceDrawer() = default;

CacheCase TraceDrawer::Draw(uint64_t seed, uint64_t index) { return draft_->Draw(seed, index); }

CacheCase DrawTrace(uint64_t seed, uint64_t index, const TraceDrawOptions& options) {
  return TraceDrawer(options).Draw(seed, index);
}

namespace {

// Bits of the operations without which a move leads nowhere.
template <typename... Kinds>
constexpr uint32_t Needs(Kinds... kinds) {
  return ((1u << static_cast<int>(kinds)) | ...);
}

}  // namespace

// Weights: with what moves of several operations add, two of five operations append, or nothing
// would be there to go wrong. Judging an attend costs fifty times as much as another operation.
const std::initializer_list<TraceDrawer::Draft::Weighted>& TraceDrawer::Draft::Moves() {
  using enum CacheOpKind;
  static const std::initializer_list<Weighted> moves = {
      {8, &Draft::MoveNew, Needs(kNew)},
      {40, &Draft::MoveAppend, Needs(kAppend)},
      {5, &Draft::MoveAttend, Needs(kAttend)},
      {12, &Draft::MoveTrim, Needs(kTrim)},
      {8, &Draft::MoveFilter, Needs(kFilter)},
      {7, &Draft::MoveExtend, Needs(kExtend)},
      {8, &Draft::MoveMerge, Needs(kMerge)},
      {7, &Draft::MoveExtract, Needs(kExtract)},
      {4, &Draft::MoveToQuantized, Needs(kToQuantized)},
      {4, &Draft::MoveCopy, Needs(kCopy)},
      {3, &Draft::MoveSave, Needs(kSave)},
      {3, &Draft::MoveLoad, Needs(kLoad)},
      {1, &Draft::MoveDrop, Needs(kDrop)},
      {6, &Draft::MoveIllegal, 0},
      {3, &Draft::MoveAnything, 0},
      {5, &Draft::MoveWrap, Needs(kAppend)},
      {7, &Draft::MovePrefill, Needs(kPrepare, kFinalize)},
      {4, &Draft::MoveRestore, Needs(kSave, kLoad)},
      {3, &Draft::MoveDamage, Needs(kSave, kLoad, kDamage)},
      {3, &Draft::MoveMergeHistories, Needs(kExtract, kMerge)},
      {1, &Draft::MoveQuantizeRing, Needs(kToQuantized)},
      {1, &Draft::MoveEmptyBatch, Needs(kFilter)},
  };
  return moves;
}

void TraceDrawer::Draft::DrawMove() {
  const auto is_there = [&](const Weighted& move) {
    return (move.needs & ~space_->operations) == 0;
  };
  int total = 0;
  for (const Weighted& move : Moves()) total += is_there(move) ? move.weight : 0;
  auto at = static_cast<int>(Below(static_cast<uint64_t>(total)));
  for (const Weighted& move : Moves()) {
    if (!is_there(move)) continue;
    at -= move.weight;
    if (at < 0) {
      (this->*move.move)();
      return;
    }
  }
}

CacheCase TraceDrawer::Draft::Draw(uint64_t seed, uint64_t index) {
  Generator random(seed, "trace", index);
  random_ = &random;
  space_ = &spaces_[index % spaces_.size()];
  DrawSetup(*space_, index / spaces_.size(), &random, &drawn_);
  case_.setup = drawn_.setup;
  case_.ops.clear();
  const int64_t most = space_->max_operations;
  length_ = static_cast<size_t>(Int(std::min<int64_t>(6, most), most));
  case_.ops.reserve(length_);
  shadow_.Start(drawn_.setup);
  AddNew(0, DrawRows());
  if (!OneIn(3)) AddAppend(0, DrawColumns(State(0)));
  // A move that finds nothing to work on adds nothing; `new` always adds.
  while (case_.ops.size() < length_) DrawMove();
  // A trace that is only judged at its end needs a cache there.
  if (UsedSlot() < 0) case_.setup.observe = Observe::kEach;
  random_ = nullptr;
  return std::move(case_);
}

void TraceDrawer::Draft::Add(CacheOp op) {
  const bool is_there = (space_->operations >> static_cast<int>(op.kind) & 1u) != 0;
  if (!is_there || case_.ops.size() >= length_) return;
  shadow_.Apply(op);
  case_.ops.push_back(std::move(op));
}

}  // namespace kvcheck
