#include "reference/prefix/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "reference/spec/prefix_limits.h"

namespace kvcheck {

HistoryRunner::HistoryRunner(PrefixImplementation* implementation)
    : implementation_(implementation) {}

void HistoryRunner::Fail(HistoryFault fault, std::string text, int request) {
  if (failed()) return;
  result_.failure = {fault, std::move(text), request, false};
  // What is missing, or cannot be carried out, may be the disk's fault; no wrong row is.
  const bool may_be_room = fault == HistoryFault::kHitMissing ||
                           fault == HistoryFault::kHitUnsteady || fault == HistoryFault::kRefused;
  if (may_be_room) no_room_ = WhyNoRoom();
}

std::string HistoryRunner::WhyNoRoom() const {
  if (folder_ == nullptr) return "";
  std::string why = implementation_->Unwritten();
  // Without a word from the implementation: all that its store may hold, and what was written to
  // it.
  const int64_t token_bytes = setup_.layers * setup_.kv_heads * (setup_.k_dim + setup_.v_dim) *
                              static_cast<int64_t>(SizeInBytes(setup_.x));
  const int64_t bytes = std::max(written_bytes_, setup_.capacity_tokens * token_bytes);
  if (why.empty() && !folder_->HasRoomFor(bytes)) {
    why = fmt::format("{} bytes, which the case's store may hold, do not fit there", bytes);
  }
  if (why.empty()) return "";
  return fmt::format(
      "no room in TMPDIR ({}): {}; make room there, or let TMPDIR name another folder",
      std::filesystem::path(folder_->path()).parent_path().string(), why);
}

bool HistoryRunner::Judged(const OpResult& result, const PrefixOp& op, bool legal,
                           bool declinable) {
  HistoryCounts& counts = result_.counts;
  if (result.status == OpStatus::kUnsupported) {
    ++counts.unsupported;
    ++counts.unsupported_by_kind[static_cast<size_t>(op.kind)];
    if (result_.declined.empty()) result_.declined = std::string(result.message);
    return false;
  }
  ++counts.operations;
  if (result.ok()) {
    if (!legal) Fail(HistoryFault::kAccepted, "the call is illegal, and was carried out");
    return legal;
  }
  if (legal && !declinable) {
    Fail(HistoryFault::kRefused, fmt::format("a legal call was refused: {}", result.message));
  }
  counts.refusals += legal ? 0 : 1;
  return false;
}

int64_t HistoryRunner::HeldTokens() const {
  int64_t tokens = 0;
  for (const Request& request : requests_) {
    if (request.open) tokens += ledger_.InBlocks(std::ssize(request.path));
  }
  return tokens;
}

bool HistoryRunner::AnyOpen() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](const Request& request) { return request.open; });
}

int64_t HistoryRunner::MostLive(const NodePath& path) const {
  int64_t most = 0;
  for (const Request& request : requests_) {
    if (request.open) most = std::max(most, CommonTokens(request.path, path));
  }
  return most;
}

void HistoryRunner::Forget(Request* request) { *request = Request(); }

void HistoryRunner::CloseAll() {
  for (Request& request : requests_) Forget(&request);
}

void HistoryRunner::Epilogue() {
  for (int request = 0; request < kRequests && !failed(); ++request) {
    PrefixOp close;
    close.kind = PrefixOpKind::kClose;
    close.request = request;
    if (At(request).open) DoClose(close);
  }
  if (failed()) return;
  CheckCounters();
  PrefixOp clear;
  clear.kind = PrefixOpKind::kClear;
  const HistoryCounts before = result_.counts;
  DoClear(clear);
  if (failed()) return;
  if (result_.counts.unsupported == before.unsupported) {
    PrefixCounters counters;
    implementation_->Observe(&counters);
    if (counters.blocks_free != PrefixCounters::kUnknown &&
        free_at_start_ != PrefixCounters::kUnknown && counters.blocks_free != free_at_start_) {
      return Fail(HistoryFault::kBlocks,
                  fmt::format("all is closed and cleared: {} blocks are free, {} were at the start",
                              counters.blocks_free, free_at_start_));
    }
    if (counters.bytes != PrefixCounters::kUnknown && bytes_at_start_ != PrefixCounters::kUnknown &&
        counters.bytes > bytes_at_start_) {
      return Fail(HistoryFault::kOverBudget,
                  fmt::format("all is closed and cleared: {} bytes are counted, {} were at the "
                              "start",
                              counters.bytes, bytes_at_start_));
    }
  }
  // A prompt that nobody has had fills the whole capacity, is kept, and hits.
  PrefixOp open;
  const int64_t wished = started_.capacity_tokens;
  open.tokens.push_back({prefix_limits::kMaxNumber, wished, true});
  last_open_.reset();
  DoOpen(open);
  if (failed() || !At(0).open) return;
  PrefixOp write;
  write.kind = PrefixOpKind::kWrite;
  DoWrite(write);
  if (failed()) return;
  CheckRead(0);
  if (failed() || std::ssize(At(0).path) != wished) return;
  PrefixOp close;
  close.kind = PrefixOpKind::kClose;
  close.keep = true;
  DoClose(close);
  last_open_.reset();
  if (!failed()) DoOpen(open);
  if (!failed()) CheckState({0});
}

void HistoryRunner::Conclude() {
  const HistoryCounts& counts = result_.counts;
  const auto mistrust = [&](std::string reason, bool by_case) {
    if (result_.outcome == Outcome::kMistrusted) return;
    result_.outcome = Outcome::kMistrusted;
    result_.reason = std::move(reason);
    result_.by_case = by_case;
  };
  if (failed() && !no_room_.empty()) {
    result_.operation = operation_;
    mistrust(
        fmt::format("{}; without room nothing is proved by: {}", no_room_, result_.failure.text),
        false);
    result_.failure = {};
    return;
  }
  if (failed()) {
    result_.outcome = Outcome::kFail;
    result_.operation = operation_;
    const std::string op = operation_ < std::ssize(case_->ops) && operation_ >= 0
                               ? Print(case_->ops[static_cast<size_t>(operation_)])
                               : OperationName(*case_, operation_);
    const std::string whose =
        result_.failure.request < 0
            ? ""
            : fmt::format(", request {}", RequestName(result_.failure.request));
    result_.reason =
        fmt::format("operation {}, {}{}: {}", operation_ + 1, op, whose, result_.failure.text);
    return;
  }
  if (counts.rows == 0 && counts.unsupported > 0) {
    result_.outcome = Outcome::kUnsupported;
    result_.reason =
        fmt::format("operations were declined, and nothing is left to judge: {}", result_.declined);
    return;
  }
  if (counts.rows == 0) mistrust("no row was read: nothing was proved", true);
  if (counts.collisions > 0) {
    mistrust(fmt::format("{} tokens have equal rows: they cannot be told apart; more channels "
                         "would tell them",
                         counts.collisions),
             true);
  }
  if (coarse_) {
    mistrust("rows are no further from each other than codes may be from them", true);
  }
  if (wrong_tier_) mistrust("a hit came from another tier than the case asks for", false);
  if (counts.might > 0 && counts.due == 0 && counts.hits == 0) {
    mistrust("what was kept was asked for, no hit was due and none was seen: nothing was proved",
             false);
  }
}

HistoryResult HistoryRunner::Run(const PrefixCase& c, const HistoryOptions& options) {
  result_ = HistoryResult();
  case_ = &c;
  options_ = options;
  operation_ = -1;
  setup_ = c.setup;
  capabilities_ = implementation_->GetCapabilities();
  CloseAll();
  last_open_.reset();
  saved_ = {};
  clears_ = 0;
  killed_ = flipped_ = coarse_ = wrong_tier_ = files_damaged_ = false;
  evicted_ = cleared_ = damaged_ = restarted_ = was_killed_ = forgot_by_epoch_ = false;
  forgotten_.clear();
  unkept_.clear();
  opens_ = hits_ = hit_tokens_ = 0;
  written_bytes_ = 0;
  no_room_.clear();
  folder_.reset();
  const bool needs_folder = setup_.disk && implementation_->UsesFolder();
  if (needs_folder) folder_ = std::make_unique<PrefixFolder>();
  if (options.on_operation) options.on_operation(-1);
  PrefixStarted started;
  const OpResult result =
      implementation_->Start(setup_, needs_folder ? folder_->path() : "", &started);
  if (!result.ok()) {
    if (result.status == OpStatus::kUnsupported) {
      result_.outcome = Outcome::kUnsupported;
      result_.declined = std::string(result.message);
      result_.reason = fmt::format("the setup is declined: {}", result.message);
      return result_;
    }
    Fail(HistoryFault::kRefused, fmt::format("a legal setup was refused: {}", result.message));
    Conclude();
    return result_;
  }
  started_ = started;
  ledger_.Start(setup_);
  ledger_.SetProfile(capabilities_.prefix_profile);
  ledger_.SetStarted(started);
  PrefixCounters counters;
  implementation_->Observe(&counters);
  free_at_start_ = counters.blocks_free;
  bytes_at_start_ = counters.bytes;
  shows_ids_ = false;
  const bool each = options.observe_each || setup_.observe == Observe::kEach;
  for (operation_ = 0; operation_ < std::ssize(c.ops); ++operation_) {
    if (options.on_operation) options.on_operation(operation_);
    const PrefixOp& op = c.ops[static_cast<size_t>(operation_)];
    Do(op);
    const bool last = operation_ + 1 == std::ssize(c.ops);
    if (!failed() && (each || last)) CheckState(NamedRequests(op));
    if (failed()) break;
  }
  result_.counts.collisions = ledger_.collisions();
  if (!failed()) {
    if (options.on_operation) options.on_operation(operation_);
    const HistoryCounts of_case = result_.counts;
    const HistoryProbeCounts probes = result_.probes;
    Epilogue();
    result_.probes = probes;
    // What follows the operations proves something of its own, and nothing about them.
    const int64_t rows = result_.counts.rows;
    result_.counts = of_case;
    if (of_case.rows > 0) result_.counts.rows = rows;
  }
  Conclude();
  folder_.reset();
  return result_;
}

}  // namespace kvcheck
