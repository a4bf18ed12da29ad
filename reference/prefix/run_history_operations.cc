// The operations of a history: what each may do, is told to do, and must answer.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "reference/prefix/run_history.h"

namespace kvcheck {
namespace {

constexpr const char* kFor[] = {"layers", "heads", "channels of K", "channels of V", "type"};

}  // namespace

template <typename F>
bool HistoryRunner::Call(const PrefixOp& op, bool legal, bool declinable, F f) {
  killed_ = false;
  if (op.kill == 0) return Judged(f(), op, legal, declinable);
  if (!implementation_->KillAtWrite(op.kill)) {
    return Judged(OpResult::Unsupported("it cannot be killed at a write"), op, legal, declinable);
  }
  bool carried_out = false;
  try {
    carried_out = Judged(f(), op, legal, declinable);
    implementation_->KillAtWrite(0);
  } catch (const PrefixKilled&) {
    killed_ = true;
    ++result_.counts.operations;
    Reach(HistoryProbe::kKilledInWrite);
  }
  return carried_out;
}
void HistoryRunner::SetPromptPath(Request* request) {
  request->prompt_path.clear();
  for (const int32_t token : request->prompt) {
    const int32_t parent = request->prompt_path.empty() ? -1 : request->prompt_path.back();
    request->prompt_path.push_back(ledger_.Child(request->who_index, parent, token));
  }
}

void HistoryRunner::DoOpen(const PrefixOp& op) {
  Request& request = At(op.request);
  if (request.open) {
    PrefixOp close;
    close.kind = PrefixOpKind::kClose;
    close.request = op.request;
    DoClose(close);
    last_open_.reset();
    if (failed() || request.open) return;
  }
  Request fresh;
  fresh.prompt = Expand(op.tokens);
  fresh.who = op.who;
  fresh.who_index = ledger_.Identity(op.who);
  fresh.all = op.all;
  fresh.epoch = ledger_.epoch();
  SetPromptPath(&fresh);
  const int64_t due = ledger_.Due(fresh.prompt_path, op.all, HeldTokens());
  int64_t most = ledger_.MostPublished(fresh.prompt_path);
  if (capabilities_.prefix_profile.shares_live) {
    most = std::max(most, MostLive(fresh.prompt_path));
  }
  PrefixHit hit;
  const bool carried_out = Call(op, true, false, [&] {
    return implementation_->Open(op.request, fresh.prompt, fresh.who, op.all, &hit);
  });
  if (!carried_out) return;
  request = std::move(fresh);
  request.open = true;
  ++result_.counts.opens;
  ++opens_;
  result_.counts.due += due > 0 ? 1 : 0;
  result_.counts.might += ledger_.MostPublished(request.prompt_path) > 0 ? 1 : 0;
  CheckHit(op, &request, hit, due, most);
  if (failed()) return;
  request.shared = request.hit;
  ledger_.Use(request.prompt_path, hit.tokens);
  const bool took_room = started_.holds_requests && hit.tokens > 0 &&
                         HeldTokens() + ledger_.KeptTokens() > started_.capacity_tokens;
  ledger_.ApplyBudget(HeldTokens());
  last_open_ = {request.prompt_path, op.all, hit.tokens, took_room};
}

int64_t HistoryRunner::TokensToWrite(const PrefixOp& op, const Request& request,
                                     std::vector<int32_t>* tokens) const {
  const auto has = static_cast<int64_t>(request.path.size());
  const int64_t left = std::max<int64_t>(0, std::ssize(request.prompt) - has);
  const int64_t count = op.count ? std::min(*op.count, left) : left;
  tokens->assign(request.prompt.begin() + std::min(has, std::ssize(request.prompt)),
                 request.prompt.begin() + std::min(has, std::ssize(request.prompt)) + count);
  const std::vector<int32_t> more = Expand(op.tokens);
  tokens->insert(tokens->end(), more.begin(), more.end());
  return count;
}

void HistoryRunner::FillVectors(const NodePath& path, WrongVectors wrong, PrefixVectors* vectors) {
  PrefixSetup shape = setup_;
  shape.layers += wrong == WrongVectors::kLayers ? 1 : 0;
  shape.kv_heads += wrong == WrongVectors::kHeads ? 1 : 0;
  shape.k_dim += wrong == WrongVectors::kKDim ? 1 : 0;
  shape.v_dim += wrong == WrongVectors::kVDim ? 1 : 0;
  if (wrong == WrongVectors::kType) {
    shape.x = setup_.x == DType::kFloat32 ? DType::kBFloat16 : DType::kFloat32;
  }
  const auto tokens = static_cast<int64_t>(path.size());
  const auto vectors_of = static_cast<size_t>(shape.layers * shape.kv_heads * tokens);
  k_.assign(vectors_of * static_cast<size_t>(shape.k_dim) * SizeInBytes(shape.x), std::byte{0});
  v_.assign(vectors_of * static_cast<size_t>(shape.v_dim) * SizeInBytes(shape.x), std::byte{0});
  *vectors = DenseVectors(shape, tokens, k_.data(), v_.data());
  if (wrong != WrongVectors::kNothing) return;
  const RowLayout& layout = ledger_.layout();
  for (int64_t token = 0; token < tokens; ++token) {
    const std::byte* content = ledger_.Content(path[static_cast<size_t>(token)]);
    for (int64_t layer = 0; layer < layout.layers; ++layer) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        std::memcpy(k_.data() + (vectors->K(layer, head, token) - vectors->k),
                    content + layout.Offset(layer, head, TokenPart::kKey),
                    static_cast<size_t>(layout.k_bytes));
        std::memcpy(v_.data() + (vectors->V(layer, head, token) - vectors->v),
                    content + layout.Offset(layer, head, TokenPart::kValue),
                    static_cast<size_t>(layout.v_bytes));
      }
    }
  }
}

void HistoryRunner::DoWrite(const PrefixOp& op) {
  Request& request = At(op.request);
  std::vector<int32_t> tokens;
  const int64_t of_prompt = TokensToWrite(op, request, &tokens);
  if (!request.open || tokens.empty()) {
    ++result_.counts.idle;
    return;
  }
  const auto has = static_cast<int64_t>(request.path.size());
  NodePath path;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (static_cast<int64_t>(i) < of_prompt) {
      path.push_back(request.prompt_path[static_cast<size_t>(has) + i]);
      continue;
    }
    const int32_t parent = !path.empty() ? path.back() : has > 0 ? request.path.back() : -1;
    path.push_back(ledger_.Child(request.who_index, parent, tokens[i]));
  }
  PrefixVectors vectors;
  FillVectors(path, op.wrong, &vectors);
  written_bytes_ += std::ssize(k_) + std::ssize(v_);
  const int64_t needed = ledger_.InBlocks(has + std::ssize(tokens)) - ledger_.InBlocks(has);
  const bool must_fit =
      !started_.holds_requests || HeldTokens() + needed <= started_.capacity_tokens;
  bool full = false;
  const bool legal = op.wrong == WrongVectors::kNothing;
  const bool carried_out = Call(
      op, legal, false, [&] { return implementation_->Write(op.request, tokens, vectors, &full); });
  // The caller's memory holds something else from now on.
  std::fill(k_.begin(), k_.end(), std::byte{0xff});
  std::fill(v_.begin(), v_.end(), std::byte{0xff});
  if (!legal && failed()) {
    result_.failure.text = fmt::format("vectors with other {} than the setup's were taken",
                                       kFor[static_cast<size_t>(op.wrong) - 1]);
  }
  if (!carried_out) return;
  if (full) {
    ++result_.counts.full;
    Reach(HistoryProbe::kWriteFull);
    if (must_fit) {
      return Fail(
          HistoryFault::kFull,
          fmt::format("there is no room for {} tokens; requests hold {} of {}, each counted "
                      "alone in whole blocks",
                      tokens.size(), HeldTokens(), started_.capacity_tokens),
          op.request);
    }
    // Whoever looked for room may have forgotten what was kept.
    return ledger_.Evicted();
  }
  ProbeWritten(request, has);
  // It goes on in a copy of a block that others may find, and lets go of that one.
  const int64_t filled = has % started_.block_tokens;
  if (filled != 0 && (has == request.hit || request.forked)) {
    ledger_.Touch(request.path, 0, filled);
  }
  for (const int32_t node : path) {
    request.path.push_back(node);
    request.got_by.push_back(static_cast<int32_t>(operation_));
    ledger_.MarkWritten(node, operation_);
    if (capabilities_.prefix_profile.publishes_at_write && request.epoch == ledger_.epoch()) {
      ledger_.Publish(node);
    }
  }
  request.cut = request.path.size() % static_cast<size_t>(started_.block_tokens) != 0;
  Reach(HistoryProbe::kPressureWhileOpen,
        ledger_.KeptTokens() > 0 && HeldTokens() + ledger_.KeptTokens() > started_.capacity_tokens);
  Reach(HistoryProbe::kCapacityOfOneRequest,
        ledger_.InBlocks(std::ssize(request.path)) == started_.capacity_tokens);
  ledger_.ApplyBudget(HeldTokens());
}

void HistoryRunner::DoClose(const PrefixOp& op) {
  Request& request = At(op.request);
  if (!request.open) {
    ++result_.counts.idle;
    return;
  }
  const bool carried_out =
      Call(op, true, false, [&] { return implementation_->Close(op.request, op.keep); });
  if (!carried_out && !killed_) return;
  ProbeClosed(request, op.keep);
  if (request.epoch == ledger_.epoch()) {
    ledger_.Touch(request.path, request.hit,
                  request.forked ? std::ssize(request.path) : request.hit);
  }
  // What was not kept is there all the same where rows are published as they are written.
  const bool stays = capabilities_.prefix_profile.publishes_at_write;
  if ((op.keep || stays) && request.epoch == ledger_.epoch()) {
    // One that has crossed an epoch may be kept, and need not.
    const int64_t tokens = std::ssize(request.path);
    // What its window has left behind does not come back by trimming.
    const int64_t shortest = request.trimmed ? tokens : request.hit;
    ledger_.Keep(request.path, /*sure=*/op.keep && !killed_ && !request.crossed,
                 tokens - request.shared, shortest);
  }
  Forget(&request);
  ledger_.ApplyBudget(HeldTokens());
}

void HistoryRunner::DoFork(const PrefixOp& op) {
  Request& request = At(op.request);
  if (!request.open || op.request == op.target) {
    ++result_.counts.idle;
    return;
  }
  if (At(op.target).open) {
    PrefixOp close;
    close.kind = PrefixOpKind::kClose;
    close.request = op.target;
    DoClose(close);
    if (failed() || At(op.target).open) return;
  }
  const bool carried_out =
      Call(op, true, false, [&] { return implementation_->Fork(op.request, op.target); });
  if (!carried_out) return;
  request.forked = true;
  At(op.target) = request;
  ledger_.ApplyBudget(HeldTokens());
}

void HistoryRunner::DoTrimTo(const PrefixOp& op) {
  Request& request = At(op.request);
  if (!request.open) {
    ++result_.counts.idle;
    return;
  }
  const auto has = static_cast<int64_t>(request.path.size());
  const bool legal = *op.count >= 0 && *op.count <= has;
  const bool may_be_gone = setup_.window > 0 && *op.count < has;
  const bool carried_out =
      Call(op, legal, may_be_gone, [&] { return implementation_->TrimTo(op.request, *op.count); });
  if (!carried_out) return;
  Reach(HistoryProbe::kTrimIntoHit, *op.count < request.hit);
  // What it lets go of is recent now.
  ledger_.Touch(request.path, std::min(request.hit, *op.count), request.forked ? has : request.hit);
  request.trimmed = request.trimmed || *op.count < has;
  request.path.resize(static_cast<size_t>(*op.count));
  request.got_by.resize(static_cast<size_t>(*op.count));
  request.hit = std::min(request.hit, *op.count);
  request.shared = std::min(request.shared, *op.count);
  request.shown.erase(request.shown.lower_bound(*op.count), request.shown.end());
}

void HistoryRunner::DoEvict(const PrefixOp& op) {
  const int64_t used = ledger_.KeptTokens() + HeldTokens();
  const bool carried_out = Call(op, true, false, [&] { return implementation_->Evict(*op.count); });
  if (!carried_out && !killed_) return;
  evicted_ = true;
  if (started_.capacity_tokens - used < *op.count) ledger_.Evicted();
}

void HistoryRunner::DoClear(const PrefixOp& op) {
  const bool busy = capabilities_.prefix_profile.busy_refused && AnyOpen();
  const bool carried_out = Call(op, true, busy, [&] { return implementation_->Clear(); });
  if (killed_) return ledger_.Unsure();
  if (!carried_out) return;
  for (const KeptPrompt& kept : ledger_.kept()) forgotten_.push_back(kept.path);
  cleared_ = true;
  ++clears_;
  // What open requests hold may stay, and hit.
  std::vector<int32_t> stays;
  for (const Request& request : requests_) {
    for (int64_t i = 0; request.open && i < ledger_.MostPublished(request.path); ++i) {
      stays.push_back(request.path[static_cast<size_t>(i)]);
    }
  }
  ledger_.Clear();
  for (Request& request : requests_) request.shared = 0;
  for (const int32_t node : stays) ledger_.Publish(node);
}

void HistoryRunner::FinishEpoch() {
  for (const KeptPrompt& kept : ledger_.kept()) forgotten_.push_back(kept.path);
  forgot_by_epoch_ = true;
  ledger_.NextEpoch();
  for (Request& request : requests_) {
    if (!request.open || !request.path.empty()) continue;
    request.epoch = ledger_.epoch();
    request.crossed = true;
    SetPromptPath(&request);
  }
}

void HistoryRunner::DoEpoch(const PrefixOp& op) {
  const bool busy = capabilities_.prefix_profile.busy_refused && AnyOpen();
  const bool carried_out = Call(op, true, busy, [&] { return implementation_->Epoch(); });
  if (killed_ || carried_out) FinishEpoch();
}

void HistoryRunner::DoSettle(const PrefixOp& op) {
  if (Call(op, true, false, [&] { return implementation_->Settle(); })) ledger_.Settle();
}

void HistoryRunner::DoSave(const PrefixOp& op) {
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  const bool carried_out = Call(op, true, false, [&] { return implementation_->Save(op.key); });
  if (killed_) {
    saved.perhaps = true;
    return;
  }
  if (!carried_out) return;
  ledger_.Save(op.key);
  saved = {true, files_damaged_, ledger_.epoch(), setup_.block_tokens, setup_.x, clears_};
}

void HistoryRunner::DoLoad(const PrefixOp& op) {
  const Saved& saved = saved_[static_cast<size_t>(op.key)];
  const bool otherwise = saved.perhaps || saved.epoch != ledger_.epoch() ||
                         saved.block_tokens != setup_.block_tokens || saved.x != setup_.x;
  const bool busy = capabilities_.prefix_profile.busy_refused && AnyOpen();
  const bool legal = saved.is_there || saved.perhaps;
  Reach(HistoryProbe::kLoadAfterClear, saved.is_there && saved.clears != clears_);
  Reach(HistoryProbe::kLoadAfterEpoch, saved.is_there && saved.epoch != ledger_.epoch());
  const bool carried_out =
      Call(op, legal, otherwise || busy, [&] { return implementation_->Load(op.key); });
  if (!carried_out) return;
  ledger_.Load(op.key);
  if (otherwise) ledger_.Unsure();
  ledger_.ApplyBudget(HeldTokens());
}

void HistoryRunner::DoDamage(const PrefixOp& op) {
  const bool carried_out = Call(op, true, false, [&]() -> OpResult {
    if (folder_ == nullptr) return implementation_->Damage(op.damage, op.at);
    folder_->Damage(op.damage, op.at);
    return {};
  });
  if (!carried_out) return;
  damaged_ = true;
  files_damaged_ = folder_ != nullptr;
  // What was saved may be among the damaged files, the folder's or the implementation's own.
  for (Saved& saved : saved_) saved.perhaps = saved.perhaps || saved.is_there;
  flipped_ =
      flipped_ || (op.damage == FileDamage::kFlip && capabilities_.prefix_profile.flips_served);
  ledger_.Damaged();
}

void HistoryRunner::Restart(const PrefixSetup& setup, bool orderly) {
  const bool other = setup.block_tokens != setup_.block_tokens || setup.x != setup_.x;
  PrefixStarted started;
  const OpResult result = implementation_->Restart(setup, orderly, &started);
  PrefixOp op;
  op.kind = PrefixOpKind::kRestart;
  if (!Judged(result, op, true, false)) return;
  CloseAll();
  if (orderly) ledger_.Settle();
  ledger_.Restart();
  if (other) ledger_.Unsure();
  setup_ = setup;
  ledger_.SetType(setup.x);
  started_ = started;
  ledger_.SetStarted(started);
  files_damaged_ = false;
  Reach(HistoryProbe::kRestartOtherSetup, other);
  restarted_ = true;
  was_killed_ = !orderly;
  opens_ = hits_ = hit_tokens_ = 0;
  // What another process begins with is its own business.
  free_at_start_ = bytes_at_start_ = PrefixCounters::kUnknown;
}

void HistoryRunner::Do(const PrefixOp& op) {
  ProbeBefore(op);
  const bool only_looks = op.kind == PrefixOpKind::kOpen || op.kind == PrefixOpKind::kRead ||
                          op.kind == PrefixOpKind::kObserve;
  if (!only_looks) last_open_.reset();
  switch (op.kind) {
    case PrefixOpKind::kOpen:
      DoOpen(op);
      break;
    case PrefixOpKind::kWrite:
      DoWrite(op);
      break;
    case PrefixOpKind::kRead:
      if (At(op.request).open) {
        ++result_.counts.operations;
        CheckRead(op.request);
      } else {
        ++result_.counts.idle;
      }
      break;
    case PrefixOpKind::kClose:
      DoClose(op);
      break;
    case PrefixOpKind::kFork:
      DoFork(op);
      break;
    case PrefixOpKind::kTrimTo:
      DoTrimTo(op);
      break;
    case PrefixOpKind::kEvict:
      DoEvict(op);
      break;
    case PrefixOpKind::kClear:
      DoClear(op);
      break;
    case PrefixOpKind::kEpoch:
      DoEpoch(op);
      break;
    case PrefixOpKind::kSettle:
      DoSettle(op);
      break;
    case PrefixOpKind::kSave:
      DoSave(op);
      break;
    case PrefixOpKind::kLoad:
      DoLoad(op);
      break;
    case PrefixOpKind::kRestart: {
      PrefixSetup setup = setup_;
      if (op.block_tokens) setup.block_tokens = *op.block_tokens;
      if (op.x) setup.x = *op.x;
      Restart(setup, !op.killed);
      break;
    }
    case PrefixOpKind::kDamage:
      DoDamage(op);
      break;
    case PrefixOpKind::kObserve:
      ++result_.counts.operations;
      ids_known_ = false;  // what was read last may be long ago
      CheckCounters();
      break;
  }
  if (op.kill == 0 || failed()) return;
  // Killed within the call, or after it: another process goes on.
  Restart(setup_, /*orderly=*/false);
  if (op.kind == PrefixOpKind::kEpoch && killed_ && !failed()) {
    killed_ = false;
    Judged(implementation_->Epoch(), op, true, false);
  }
}

}  // namespace kvcheck
