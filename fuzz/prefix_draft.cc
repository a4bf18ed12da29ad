#include "fuzz/prefix_draft.h"

#include <algorithm>
#include <utility>

namespace kvcheck {
namespace {

template <typename... Kinds>
constexpr uint32_t Needs(Kinds... kinds) {
  return ((1u << static_cast<int>(kinds)) | ...);
}

// Texts that keys are made of wrongly: separators and what stands for them in names of files,
// prefixes of each other, bytes that are no ASCII.
constexpr std::string_view kTexts[] = {
    "a",  "b", "",   "/",   "@",        "%",   "a/b", "a@b",  "a-b", "a_b",
    "ab", "A", "a ", "a=b", "\xc3\xa9", "a:b", "0",   "None", "-",   "a%2Fb",
};

}  // namespace

const std::initializer_list<PrefixDraft::Weighted>& PrefixDraft::Moves() {
  using enum PrefixOpKind;
  using D = PrefixDraft;
  static const std::initializer_list<Weighted> moves = {
      {14, &D::MoveStore, false, Needs(kOpen, kWrite, kClose)},
      {14, &D::MoveFetch, false, Needs(kOpen)},
      {10, &D::MoveOpen, false, Needs(kOpen)},
      {12, &D::MoveWrite, false, Needs(kWrite)},
      {4, &D::MoveMore, false, Needs(kWrite)},
      {12, &D::MoveClose, false, Needs(kClose)},
      {2, &D::MoveFork, false, Needs(kFork)},
      {3, &D::MoveTrim, false, Needs(kTrimTo)},
      {4, &D::MoveEvict, false, Needs(kEvict)},
      {1, &D::MoveClear, false, Needs(kClear)},
      {1, &D::MoveEpoch, false, Needs(kEpoch)},
      {2, &D::MoveLook, false, 0},
      {2, &D::MoveIllegal, false, 0},
      {2, &D::MoveAnything, false, 0},
      {5, &D::MoveOtherIdentity, false, Needs(kOpen, kWrite, kClose)},
      {4, &D::MoveEqualBlock, false, Needs(kOpen, kWrite, kClose)},
      {4, &D::MoveSplit, false, Needs(kOpen, kWrite, kClose)},
      {3, &D::MoveTwice, false, Needs(kOpen, kWrite, kClose)},
      {3, &D::MoveForkBoth, false, Needs(kOpen, kWrite, kFork)},
      {3, &D::MoveTrimAndKeep, false, Needs(kOpen, kWrite, kTrimTo, kClose)},
      {3, &D::MoveFill, false, Needs(kOpen, kWrite)},
      {4, &D::MoveForget, false, Needs(kOpen, kWrite, kClose)},
      {4, &D::MoveRevive, false, Needs(kOpen, kClose, kEvict)},
      {8, &D::MoveRestart, true, Needs(kRestart)},
      {6, &D::MoveKill, true, Needs(kRestart)},
      {6, &D::MoveDamage, true, Needs(kDamage, kRestart)},
      {3, &D::MoveSaveLoad, false, Needs(kSave, kLoad)},
  };
  return moves;
}

void PrefixDraft::DrawSetup() {
  PrefixSetup& setup = case_.setup;
  setup = PrefixSetup();
  constexpr int64_t kBlocks[] = {1, 2, 4};
  setup.block_tokens =
      space_.blocks.empty() ? kBlocks[Below(3)] : space_.blocks[Below(space_.blocks.size())];
  // Small pools are where blocks are reused; in a large one what is kept has to hit.
  const int64_t blocks = OneIn(3) ? Int(64, 128) : Int(3, 20);
  setup.capacity_tokens = blocks * setup.block_tokens;
  setup.layers = Int(1, 3);
  setup.kv_heads = OneIn(3) ? 2 : 1;
  setup.k_dim = OneIn(2) ? 16 : 32;
  setup.v_dim = space_.same_dims || OneIn(2) ? setup.k_dim : 48 - setup.k_dim;
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  setup.x = space_.x.empty() ? kTypes[Below(3)] : space_.x[Below(space_.x.size())];
  if (space_.quantizes && OneIn(4)) {
    std::vector<KvFormat> fitting;
    for (const KvFormat& format : formats_) {
      if (RowDType(format) == setup.x || IsPlain(format)) fitting.push_back(format);
    }
    if (!fitting.empty()) {
      setup.k_dim = setup.v_dim = 32;
      setup.k = fitting[Below(fitting.size())];
      setup.v = OneIn(2) ? setup.k : fitting[Below(fitting.size())];
      if (OneIn(2)) setup.quantize_from = Int(1, 12);
    }
  }
  if (space_.windows && OneIn(6)) setup.window = Int(1, 8);
  if (space_.entries && OneIn(5)) setup.max_entries = Int(1, 6);
  setup.disk = space_.disk && OneIn(3);
  if (OneIn(8)) setup.observe = Observe::kLast;
  setup.data = {"tokens", Below(1000), ""};
}

void PrefixDraft::DrawIdentities() {
  identities_ = {PrefixIdentity()};
  const auto has = [&](int field) { return (space_.identity >> field & 1u) != 0; };
  const auto text = [&] {
    return std::string(kTexts[OneIn(2) ? Below(2) : Below(std::size(kTexts))]);
  };
  const int64_t count = OneIn(4) ? 0 : Int(1, 4);
  for (int64_t i = 0; i < count; ++i) {
    // Often one that differs in a field from an earlier one.
    PrefixIdentity who = OneIn(2) ? PrefixIdentity() : identities_[Below(identities_.size())];
    switch (Below(6)) {
      case 0:
        if (has(0)) who.model = text();
        break;
      case 1:
        if (has(1)) who.salt = text();
        break;
      case 2:
        if (has(2)) who.adapter = text();
        break;
      case 3:
        if (has(2) && has(3)) {
          if (!who.adapter) who.adapter = text();
          who.version = Int(1, 2);
        }
        break;
      case 4:
        if (has(4)) who.image = text();
        break;
      default:
        if (has(1) && has(2)) {
          if (who.version == 0 || who.salt) std::swap(who.salt, who.adapter);
        }
    }
    if (!who.adapter) who.version = 0;
    if (std::find(identities_.begin(), identities_.end(), who) == identities_.end()) {
      identities_.push_back(std::move(who));
    }
  }
}

PrefixCase PrefixDraft::Draw() {
  DrawSetup();
  DrawIdentities();
  const int64_t most = space_.max_operations > 0 ? std::min(space_.max_operations, max_operations_)
                                                 : max_operations_;
  length_ = Int(std::min<int64_t>(8, most), most);
  case_.ops.reserve(static_cast<size_t>(length_));  // what Add gives stays where it is
  letters_ = {0, 1};
  if (OneIn(2)) letters_.push_back(2);
  // One whose low byte is that of another one.
  if (OneIn(4)) letters_.back() = 256;
  // One draw after the other: the order of arguments is the compiler's.
  const int who = Who();
  AddStored(DrawPrompt().tokens, who);
  // A move that finds nothing to work on adds nothing; open always adds.
  while (!IsFull()) DrawMove();
  return std::move(case_);
}

void PrefixDraft::DrawMove() {
  const auto is_there = [&](const Weighted& move) {
    return (move.needs & ~space_.operations) == 0 && (!move.disk || case_.setup.disk);
  };
  int total = 0;
  for (const Weighted& move : Moves()) total += is_there(move) ? move.weight : 0;
  auto at = static_cast<int>(Below(static_cast<uint64_t>(total)));
  for (const Weighted& move : Moves()) {
    if (!is_there(move)) continue;
    at -= move.weight;
    if (at < 0) return (this->*move.move)();
  }
}

PrefixOp* PrefixDraft::Add(PrefixOpKind kind) {
  if (IsFull() || !Has(kind)) return nullptr;
  PrefixOp op;
  op.kind = kind;
  case_.ops.push_back(std::move(op));
  return &case_.ops.back();
}

int PrefixDraft::FreeRequest() {
  // Half of the names, so that open requests are met again.
  const int count = OneIn(6) ? kRequests : kRequests / 2;
  const auto first = static_cast<int>(Below(static_cast<uint64_t>(count)));
  for (int i = 0; i < count; ++i) {
    const int request = (first + i) % count;
    if (!requests_[static_cast<size_t>(request)].open) return request;
  }
  return first;
}

int PrefixDraft::UsedRequest() {
  std::array<int, kRequests> used{};
  uint64_t count = 0;
  for (int request = 0; request < kRequests; ++request) {
    if (requests_[static_cast<size_t>(request)].open) used[count++] = request;
  }
  return count == 0 ? -1 : used[Below(count)];
}

PrefixDraft::Tokens PrefixDraft::DrawTokens(int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(letters_[Below(letters_.size())]);
  }
  return tokens;
}

int32_t PrefixDraft::OtherLetter(int32_t letter) {
  const auto at =
      static_cast<size_t>(std::find(letters_.begin(), letters_.end(), letter) - letters_.begin());
  return letters_[(at + 1 + Below(letters_.size() - 1)) % letters_.size()];
}

PrefixDraft::Prompt PrefixDraft::DrawPrompt() {
  Prompt prompt;
  prompt.who = Who();
  if (!prompts_.empty() && !OneIn(8)) {
    const Prompt& earlier = prompts_[Below(prompts_.size())];
    const int64_t cut = OneIn(3) ? std::ssize(earlier.tokens) : Int(1, std::ssize(earlier.tokens));
    prompt.tokens.assign(earlier.tokens.begin(), earlier.tokens.begin() + cut);
    if (!OneIn(4)) prompt.who = earlier.who;
  }
  const Tokens more = DrawTokens(Int(prompt.tokens.empty() ? 1 : 0, 8));
  prompt.tokens.insert(prompt.tokens.end(), more.begin(), more.end());
  if (std::ssize(prompt.tokens) < space_.least_tokens) {
    const Tokens rest = DrawTokens(space_.least_tokens - std::ssize(prompt.tokens) + Int(0, 8));
    prompt.tokens.insert(prompt.tokens.end(), rest.begin(), rest.end());
  }
  // Prompts stay short, or a pool of blocks holds none.
  const int64_t longest = std::max<int64_t>(space_.least_tokens + 16, 24);
  if (std::ssize(prompt.tokens) > longest) prompt.tokens.resize(static_cast<size_t>(longest));
  return prompt;
}

int PrefixDraft::AddOpen(Tokens tokens, int who) {
  const int64_t missing = space_.least_tokens - std::ssize(tokens);
  if (missing > 0) {
    const Tokens rest = DrawTokens(missing);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
  }
  const int request = FreeRequest();
  PrefixOp* op = Add(PrefixOpKind::kOpen);
  if (op == nullptr) return -1;
  op->request = request;
  op->tokens = RunsOf(tokens);
  op->who = identities_[static_cast<size_t>(who)];
  op->all = space_.all && OneIn(2);
  requests_[static_cast<size_t>(request)] = {true, tokens, 0, who};
  prompts_.push_back({tokens, who});
  return request;
}

void PrefixDraft::AddWrite(int request, std::optional<int64_t> count) {
  if (request < 0) return;
  PrefixOp* op = Add(PrefixOpKind::kWrite);
  if (op == nullptr) return;
  op->request = request;
  op->count = count;
  OpenRequest& open = requests_[static_cast<size_t>(request)];
  open.written =
      count ? std::min(std::ssize(open.tokens), open.written + *count) : std::ssize(open.tokens);
}

void PrefixDraft::DrawKill(PrefixOp* op) {
  if (case_.setup.disk && Has(PrefixOpKind::kRestart) && OneIn(12)) {
    op->kill = Int(1, 4);
    for (OpenRequest& open : requests_) open = {};
  }
}

void PrefixDraft::AddClose(int request, bool keep) {
  if (request < 0) return;
  PrefixOp* op = Add(PrefixOpKind::kClose);
  if (op == nullptr) return;
  op->request = request;
  op->keep = keep;
  requests_[static_cast<size_t>(request)] = {};
  if (keep) DrawKill(op);
}

void PrefixDraft::AddStored(const Tokens& tokens, int who) {
  const int request = AddOpen(tokens, who);
  AddWrite(request);
  AddClose(request, true);
}

void PrefixDraft::MoveOpen() {
  const Prompt prompt = DrawPrompt();
  AddOpen(prompt.tokens, prompt.who);
}

void PrefixDraft::MoveWrite() {
  const int request = UsedRequest();
  if (request < 0) return;
  if (OneIn(3)) return AddWrite(request);
  AddWrite(request, Int(1, 5));
}

void PrefixDraft::MoveMore() {
  const int request = UsedRequest();
  PrefixOp* op = request < 0 ? nullptr : Add(PrefixOpKind::kWrite);
  if (op == nullptr) return;
  OpenRequest& open = requests_[static_cast<size_t>(request)];
  const Tokens more = DrawTokens(Int(1, 5));
  op->request = request;
  op->tokens = RunsOf(more);
  open.tokens.insert(open.tokens.end(), more.begin(), more.end());
  open.written = std::ssize(open.tokens);
  prompts_.push_back({open.tokens, open.who});
}

void PrefixDraft::MoveClose() {
  const int request = UsedRequest();
  if (request >= 0) AddClose(request, !OneIn(4));
}

void PrefixDraft::MoveFork() {
  const int request = UsedRequest();
  const int target = FreeRequest();
  if (request < 0 || request == target) return;
  PrefixOp* op = Add(PrefixOpKind::kFork);
  if (op == nullptr) return;
  op->request = request;
  op->target = target;
  requests_[static_cast<size_t>(target)] = requests_[static_cast<size_t>(request)];
}

void PrefixDraft::MoveTrim() {
  const int request = UsedRequest();
  PrefixOp* op = request < 0 ? nullptr : Add(PrefixOpKind::kTrimTo);
  if (op == nullptr) return;
  OpenRequest& open = requests_[static_cast<size_t>(request)];
  op->request = request;
  op->count = Int(0, std::max<int64_t>(1, open.written));
  open.written = std::min(open.written, *op->count);
}

void PrefixDraft::MoveEvict() {
  PrefixOp* op = Add(PrefixOpKind::kEvict);
  if (op != nullptr) op->count = Int(1, case_.setup.capacity_tokens);
}

void PrefixDraft::MoveClear() {
  PrefixOp* op = Add(PrefixOpKind::kClear);
  if (op != nullptr) DrawKill(op);
}

void PrefixDraft::MoveEpoch() {
  PrefixOp* op = Add(PrefixOpKind::kEpoch);
  if (op != nullptr) DrawKill(op);
}

void PrefixDraft::MoveLook() {
  if (OneIn(3)) {
    Add(PrefixOpKind::kObserve);
    return;
  }
  const int request = UsedRequest();
  PrefixOp* op = request < 0 ? nullptr : Add(PrefixOpKind::kRead);
  if (op != nullptr) op->request = request;
}

void PrefixDraft::MoveIllegal() {
  const int request = UsedRequest();
  if (request < 0) return;
  if (OneIn(2) && Has(PrefixOpKind::kTrimTo)) {
    PrefixOp* op = Add(PrefixOpKind::kTrimTo);
    if (op == nullptr) return;
    op->request = request;
    op->count = OneIn(2) ? -Int(1, 4) : Int(100, 200);
    return;
  }
  PrefixOp* op = Add(PrefixOpKind::kWrite);
  if (op == nullptr) return;
  op->request = request;
  op->wrong = static_cast<WrongVectors>(1 + Below(kWrongVectors));
}

void PrefixDraft::MoveAnything() {
  const auto kind = static_cast<PrefixOpKind>(Below(kPrefixOpKinds));
  const bool needs_tokens = kind == PrefixOpKind::kOpen;
  const bool of_disk = kind == PrefixOpKind::kRestart || kind == PrefixOpKind::kDamage;
  if (needs_tokens || (of_disk && !case_.setup.disk)) return MoveOpen();
  if (kind == PrefixOpKind::kDamage && space_.damages == 0) return;
  PrefixOp* op = Add(kind);
  if (op == nullptr) return;
  const size_t named = NamedRequests(*op).size();
  if (named > 0) op->request = static_cast<int>(Below(kRequests));
  if (named > 1) op->target = static_cast<int>(Below(kRequests));
  if (kind == PrefixOpKind::kTrimTo || kind == PrefixOpKind::kEvict) op->count = Int(1, 8);
  if (kind == PrefixOpKind::kClose) {
    op->keep = OneIn(2);
    requests_[static_cast<size_t>(op->request)] = {};
  }
  if (kind == PrefixOpKind::kSave || kind == PrefixOpKind::kLoad) {
    op->key = static_cast<int>(Below(2));
  }
  if (kind == PrefixOpKind::kDamage) {
    do {
      op->damage = static_cast<FileDamage>(Below(kFileDamages));
    } while (!space_.Has(op->damage));
    op->at = Int(0, 10'000);
  }
  if (kind == PrefixOpKind::kRestart) {
    op->killed = OneIn(2);
    for (OpenRequest& open : requests_) open = {};
  }
}

}  // namespace kvcheck
