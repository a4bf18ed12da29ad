#include "fuzz/draw_trace.h"

#include <algorithm>
#include <utility>

#include "fuzz/trace_draft.h"

namespace kvcheck {

TraceDrawer::TraceDrawer(const TraceDrawOptions& options)
    : draft_(std::make_unique<Draft>(ReadSpace(options))) {}

TraceDrawer::~TraceDrawer() = default;

CacheCase TraceDrawer::Draw(uint64_t seed, uint64_t index) { return draft_->Draw(seed, index); }

CacheCase DrawTrace(uint64_t seed, uint64_t index, const TraceDrawOptions& options) {
  return TraceDrawer(options).Draw(seed, index);
}

// Weights: with what moves of several operations add, two of five operations append, or nothing
// would be there to go wrong. Judging an attend costs fifty times as much as another operation.
const std::initializer_list<TraceDrawer::Draft::Weighted>& TraceDrawer::Draft::Moves() {
  static const std::initializer_list<Weighted> moves = {
      {8, &Draft::MoveNew},        {40, &Draft::MoveAppend},        {5, &Draft::MoveAttend},
      {12, &Draft::MoveTrim},      {8, &Draft::MoveFilter},         {7, &Draft::MoveExtend},
      {8, &Draft::MoveMerge},      {7, &Draft::MoveExtract},        {4, &Draft::MoveToQuantized},
      {4, &Draft::MoveCopy},       {3, &Draft::MoveSave},           {3, &Draft::MoveLoad},
      {1, &Draft::MoveDrop},       {6, &Draft::MoveIllegal},        {3, &Draft::MoveAnything},
      {5, &Draft::MoveWrap},       {7, &Draft::MovePrefill},        {4, &Draft::MoveRestore},
      {3, &Draft::MoveDamage},     {3, &Draft::MoveMergeHistories}, {1, &Draft::MoveQuantizeRing},
      {1, &Draft::MoveEmptyBatch},
  };
  return moves;
}

void TraceDrawer::Draft::DrawMove() {
  static const int total = [] {
    int sum = 0;
    for (const Weighted& move : Moves()) sum += move.weight;
    return sum;
  }();
  auto at = static_cast<int>(Below(static_cast<uint64_t>(total)));
  for (const Weighted& move : Moves()) {
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
  DrawSetup(space_, index, &random, &drawn_);
  case_.setup = drawn_.setup;
  case_.ops.clear();
  length_ =
      static_cast<size_t>(Int(std::min<int64_t>(6, space_.max_operations), space_.max_operations));
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
  if (case_.ops.size() >= length_) return;
  shadow_.Apply(op);
  case_.ops.push_back(std::move(op));
}

}  // namespace kvcheck
