// Moves of several operations, each into a state that chance seldom reaches.

#include <algorithm>
#include <utility>

#include "fuzz/prefix_draft.h"

namespace kvcheck {

void PrefixDraft::MoveStore() {
  const Prompt prompt = DrawPrompt();
  const int request = AddOpen(prompt.tokens, prompt.who);
  // In chunks that cut blocks, or at once.
  if (OneIn(3)) AddWrite(request, Int(1, std::ssize(prompt.tokens)));
  AddWrite(request);
  // A third stays open.
  if (!OneIn(3)) AddClose(request, !OneIn(6));
}

void PrefixDraft::MoveFetch() {
  if (prompts_.empty()) return MoveOpen();
  const Prompt prompt = prompts_[Below(prompts_.size())];
  const int request = AddOpen(prompt.tokens, prompt.who);
  if (OneIn(4)) {
    AddOpen(prompt.tokens, prompt.who);
  }
  if (OneIn(2)) AddClose(request, OneIn(2));
}

void PrefixDraft::MoveOtherIdentity() {
  if (identities_.size() < 2) return MoveStore();
  const Prompt prompt = DrawPrompt();
  if (!OneIn(3)) AddStored(prompt.tokens, prompt.who);
  int who = Who();
  if (who == prompt.who) who = (who + 1) % static_cast<int>(identities_.size());
  AddOpen(prompt.tokens, who);
}

void PrefixDraft::MoveEqualBlock() {
  const int64_t block = case_.setup.block_tokens;
  const int64_t least = std::max<int64_t>(space_.least_tokens - 2 * block, 0);
  Tokens first = DrawTokens(block);
  Tokens other = first;
  int32_t& changed = other[Below(other.size())];
  changed = OtherLetter(changed);
  const Tokens same = DrawTokens(block + least);
  for (Tokens* tokens : {&first, &other}) tokens->insert(tokens->end(), same.begin(), same.end());
  const Tokens beyond = DrawTokens(Int(1, 2));
  other.insert(other.end(), beyond.begin(), beyond.end());
  const int who = Who();
  AddStored(first, who);
  // The first block of the other prompt is there or not.
  if (OneIn(2)) AddStored(Tokens(other.begin(), other.begin() + block), who);
  AddOpen(other, who);
}

void PrefixDraft::MoveSplit() {
  const Prompt prompt = DrawPrompt();
  AddStored(prompt.tokens, prompt.who);
  const int reader = AddOpen(prompt.tokens, prompt.who);
  Tokens parting(prompt.tokens.begin(), prompt.tokens.begin() + Int(1, std::ssize(prompt.tokens)));
  const Tokens more = DrawTokens(Int(1, 6) + std::max<int64_t>(space_.least_tokens - 1, 0));
  parting.insert(parting.end(), more.begin(), more.end());
  AddStored(parting, prompt.who);
  if (OneIn(2)) MoveEvict();
  if (OneIn(2)) AddClose(reader, OneIn(2));
}

void PrefixDraft::MoveTwice() {
  const Prompt prompt = DrawPrompt();
  const int first = AddOpen(prompt.tokens, prompt.who);
  const int second = AddOpen(prompt.tokens, prompt.who);
  AddWrite(first);
  AddWrite(second);
  AddClose(first, true);
  AddClose(second, !OneIn(3));
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveForkBoth() {
  const Prompt prompt = DrawPrompt();
  const int request = AddOpen(prompt.tokens, prompt.who);
  AddWrite(request);
  const int target = FreeRequest();
  if (request < 0 || target == request) return;
  PrefixOp* op = Add(PrefixOpKind::kFork);
  if (op == nullptr) return;
  op->request = request;
  op->target = target;
  requests_[static_cast<size_t>(target)] = requests_[static_cast<size_t>(request)];
  for (const int each : {request, target}) {
    PrefixOp* write = Add(PrefixOpKind::kWrite);
    if (write == nullptr) return;
    write->request = each;
    const Tokens more = DrawTokens(Int(1, 4));
    write->tokens = RunsOf(more);
    OpenRequest& open = requests_[static_cast<size_t>(each)];
    open.tokens.insert(open.tokens.end(), more.begin(), more.end());
    open.written = std::ssize(open.tokens);
    prompts_.push_back({open.tokens, open.who});
  }
  if (OneIn(2)) AddClose(OneIn(2) ? request : target, true);
}

void PrefixDraft::MoveTrimAndKeep() {
  const Prompt prompt = DrawPrompt();
  if (OneIn(2)) AddStored(prompt.tokens, prompt.who);
  const int request = AddOpen(prompt.tokens, prompt.who);
  AddWrite(request);
  PrefixOp* op = request < 0 ? nullptr : Add(PrefixOpKind::kTrimTo);
  if (op == nullptr) return;
  op->request = request;
  op->count = Int(0, std::ssize(prompt.tokens));
  if (OneIn(2)) {
    PrefixOp* write = Add(PrefixOpKind::kWrite);
    if (write == nullptr) return;
    write->request = request;
    if (*op->count >= std::ssize(prompt.tokens) || OneIn(2)) write->tokens = RunsOf(DrawTokens(2));
  }
  AddClose(request, true);
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveFill() {
  if (case_.setup.capacity_tokens > 160) return MoveStore();
  Prompt prompt = DrawPrompt();
  const Tokens more = DrawTokens(case_.setup.capacity_tokens);
  prompt.tokens.insert(prompt.tokens.end(), more.begin(), more.end());
  prompt.tokens.resize(static_cast<size_t>(
      std::max(space_.least_tokens, case_.setup.capacity_tokens + (OneIn(4) ? 1 : 0))));
  const int request = AddOpen(prompt.tokens, prompt.who);
  prompts_.pop_back();
  AddWrite(request);
  if (OneIn(2)) MoveWrite();
  AddClose(request, OneIn(2));
}

void PrefixDraft::MoveForget() {
  const Prompt prompt = DrawPrompt();
  AddStored(prompt.tokens, prompt.who);
  int reader = -1;
  if (OneIn(3)) reader = AddOpen(prompt.tokens, prompt.who);
  if (OneIn(2)) {
    MoveClear();
  } else {
    MoveEpoch();
  }
  if (reader >= 0 && requests_[static_cast<size_t>(reader)].open) AddClose(reader, OneIn(2));
  if (case_.setup.disk && OneIn(3)) MoveRestart();
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveRevive() {
  const Prompt prompt = DrawPrompt();
  AddStored(prompt.tokens, prompt.who);
  PrefixOp* op = Add(PrefixOpKind::kEvict);
  if (op == nullptr) return;
  op->count = Int(1, case_.setup.block_tokens);
  const int request = AddOpen(prompt.tokens, prompt.who);
  if (OneIn(2)) AddOpen(prompt.tokens, prompt.who);
  AddClose(request, OneIn(2));
  if (OneIn(2)) MoveEvict();
  if (OneIn(2)) MoveStore();
}

void PrefixDraft::MoveRestart() {
  if (OneIn(3)) Add(PrefixOpKind::kSettle);
  PrefixOp* op = Add(PrefixOpKind::kRestart);
  if (op == nullptr) return;
  op->killed = OneIn(3);
  if (OneIn(5)) {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
    const bool fixed = case_.setup.k.has_value();  // its formats have that type
    if (!fixed) op->x = space_.x.empty() ? kTypes[Below(3)] : space_.x[Below(space_.x.size())];
  } else if (OneIn(6)) {
    constexpr int64_t kBlocks[] = {1, 2, 4};
    op->block_tokens = std::min(
        case_.setup.capacity_tokens,
        space_.blocks.empty() ? kBlocks[Below(3)] : space_.blocks[Below(space_.blocks.size())]);
  }
  for (OpenRequest& open : requests_) open = {};
  if (prompts_.empty()) return;
  const Prompt prompt = prompts_[Below(prompts_.size())];
  if (AddOpen(prompt.tokens, prompt.who) >= 0 && !op->killed && space_.tiers && OneIn(2)) {
    case_.ops.back().from = PrefixTier::kDisk;
  }
}

void PrefixDraft::MoveKill() {
  const Prompt prompt = DrawPrompt();
  const int request = AddOpen(prompt.tokens, prompt.who);
  AddWrite(request);
  PrefixOp* op = request < 0 ? nullptr : Add(PrefixOpKind::kClose);
  if (op == nullptr) return;
  op->request = request;
  op->keep = true;
  op->kill = Int(1, 4);
  for (OpenRequest& open : requests_) open = {};
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveDamage() {
  if (space_.damages == 0) return;
  const Prompt prompt = DrawPrompt();
  AddStored(prompt.tokens, prompt.who);
  if (OneIn(2)) Add(PrefixOpKind::kSettle);
  PrefixOp* op = Add(PrefixOpKind::kDamage);
  if (op == nullptr) return;
  do {
    op->damage = static_cast<FileDamage>(Below(kFileDamages));
  } while (!space_.Has(op->damage));
  op->at = Int(0, 10'000);
  PrefixOp* restart = Add(PrefixOpKind::kRestart);
  if (restart == nullptr) return;
  for (OpenRequest& open : requests_) open = {};
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveSaveLoad() {
  const Prompt prompt = DrawPrompt();
  AddStored(prompt.tokens, prompt.who);
  const auto key = static_cast<int>(Below(2));
  PrefixOp* save = Add(PrefixOpKind::kSave);
  if (save == nullptr) return;
  save->key = key;
  if (OneIn(3)) MoveStore();
  if (OneIn(2)) {
    MoveClear();
  } else if (OneIn(3)) {
    MoveEpoch();
  }
  PrefixOp* load = Add(PrefixOpKind::kLoad);
  if (load == nullptr) return;
  load->key = key;
  AddOpen(prompt.tokens, prompt.who);
}

}  // namespace kvcheck
