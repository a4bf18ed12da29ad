#include "reference/prefix/ledger.h"

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {

int64_t CommonTokens(const NodePath& a, const NodePath& b) {
  // A node stands for everything before it, so that equal nodes mean equal prefixes.
  const size_t most = std::min(a.size(), b.size());
  size_t low = 0;
  size_t high = most;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (a[middle - 1] == b[middle - 1]) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<int64_t>(low);
}

void Ledger::Start(const PrefixSetup& setup) {
  setup_ = setup;
  layout_.emplace(setup);
  seed_ = setup.data.seed;
  epoch_ = 0;
  generation_ = 0;
  clock_ = 0;
  damaged_ = false;
  identities_.clear();
  identity_hashes_.clear();
  nodes_.clear();
  by_digest_.clear();
  contents_.clear();
  by_signs_.clear();
  collisions_ = 0;
  kept_.clear();
  for (SavedStore& saved : saved_) saved = {};
}

void Ledger::SetType(DType x) {
  if (setup_.x == x) return;
  setup_.x = x;
  layout_.emplace(setup_);
  contents_.clear();
  for (PrefixNode& node : nodes_) node.content = -1;
}

int32_t Ledger::Identity(const PrefixIdentity& who) {
  const auto found = std::find(identities_.begin(), identities_.end(), who);
  if (found != identities_.end()) return static_cast<int32_t>(found - identities_.begin());
  identities_.push_back(who);
  identity_hashes_.push_back(IdentityHash(who));
  return static_cast<int32_t>(identities_.size() - 1);
}

uint64_t Ledger::DigestOf(int32_t who, int32_t parent, int32_t token) const {
  const uint64_t before =
      parent >= 0 ? At(parent).digest
                  : EmptyDigest(seed_, epoch_, identity_hashes_[static_cast<size_t>(who)]);
  return NextDigest(before, token);
}

int32_t Ledger::FindChild(int32_t who, int32_t parent, int32_t token) const {
  const auto found = by_digest_.find(DigestOf(who, parent, token));
  return found == by_digest_.end() ? -1 : found->second;
}

int32_t Ledger::Child(int32_t who, int32_t parent, int32_t token) {
  const uint64_t digest = DigestOf(who, parent, token);
  const auto [place, is_new] = by_digest_.try_emplace(digest, static_cast<int32_t>(nodes_.size()));
  if (!is_new) {
    const PrefixNode& node = At(place->second);
    KVCHECK_CHECK(node.parent == parent && node.token == token && node.who == who,
                  "two prefixes of a history have one digest of 64 bits");
    return place->second;
  }
  PrefixNode node;
  node.digest = digest;
  node.parent = parent;
  node.token = token;
  node.who = who;
  node.epoch = parent >= 0 ? At(parent).epoch : static_cast<int32_t>(epoch_);
  node.position = parent >= 0 ? At(parent).position + 1 : 0;
  nodes_.push_back(node);
  return place->second;
}

const std::byte* Ledger::Content(int32_t index) {
  PrefixNode& node = nodes_[static_cast<size_t>(index)];
  if (node.content < 0) {
    node.content = static_cast<int64_t>(contents_.size());
    contents_.resize(contents_.size() + static_cast<size_t>(layout_->TokenBytes()));
    std::byte* out = contents_.data() + node.content;
    FillToken(node.digest, *layout_, out);
    // Of few channels all vectors repeat; of many none does, so that one of each token tells.
    const uint64_t signs = SignsIn(out, layout_->dtype, layout_->k_dim);
    const auto [other, is_new] = by_signs_.try_emplace(signs, index);
    if (!is_new && other->second != index) ++collisions_;
  }
  return contents_.data() + node.content;
}

void Ledger::MarkWritten(int32_t index, int64_t operation) {
  PrefixNode& node = nodes_[static_cast<size_t>(index)];
  if (node.written < 0) node.written = static_cast<int32_t>(operation);
}

void Ledger::Keep(const NodePath& path, bool sure, int64_t written, int64_t shortest) {
  if (path.empty()) return;
  for (const int32_t node : path) Publish(node);
  ++clock_;
  if (std::ssize(path) < profile_.minimum_tokens) return;
  const auto is_prefix = [&](const KeptPrompt& kept, size_t tokens) {
    return !kept.touch && kept.path.size() == tokens && kept.path.back() == path[tokens - 1];
  };
  const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const KeptPrompt& kept) {
    return is_prefix(kept, path.size());
  });
  const bool may_be_there = same != kept_.end();
  if (profile_.superseded_dropped) {
    const auto superseded = [&](const KeptPrompt& kept) {
      return kept.path.size() < path.size() && is_prefix(kept, kept.path.size());
    };
    // What is there already does not come, and drops nothing; nor may what is not there.
    if (may_be_there || !sure) {
      for (KeptPrompt& kept : kept_) {
        if (superseded(kept)) kept.sure = kept.durable = false;
      }
    } else {
      std::erase_if(kept_, superseded);
    }
  }
  const bool is_durable = setup_.disk && profile_.persists == Persists::kClose && !damaged_;
  if (may_be_there && written == 0) {
    same->used = clock_;
    if (!same->sure) same->shortest = shortest;
    same->sure = same->sure || sure;
    same->in_memory = same->in_memory || sure;
    same->durable = same->durable || (sure && is_durable);
    return;
  }
  // Of what is kept twice, the later one may have taken the place of the earlier one.
  for (KeptPrompt& kept : kept_) {
    if (is_prefix(kept, path.size())) kept.shortest = std::max(kept.shortest, shortest);
  }
  // A prompt that two requests have computed may be held twice.
  kept_.push_back(
      {path, clock_, sure, sure && is_durable, true, false, std::ssize(path), shortest});
}

void Ledger::Use(const NodePath& path, int64_t tokens) {
  if (tokens > 0 && profile_.fetch_takes) return Unsure();
  Touch(path, tokens, MostPublished(path));
}

void Ledger::Touch(const NodePath& path, int64_t certain, int64_t perhaps) {
  if (perhaps == 0 || !profile_.evicts_lru) return;
  ++clock_;
  KeptPrompt touch;
  touch.path.assign(path.begin(), path.begin() + certain);
  touch.used = clock_;
  touch.touch = true;
  touch.sure = false;
  touch.tokens = perhaps;
  // A store of whole prompts makes all of one recent, not its beginning.
  if (profile_.grain == HitGrain::kToken) {
    for (const KeptPrompt& kept : kept_) {
      const bool may_be_it = !kept.touch && CommonTokens(kept.path, path) > 0;
      if (may_be_it) touch.tokens = std::max(touch.tokens, kept.tokens);
    }
  }
  // What all of a sure prompt survives, its beginning does.
  for (const KeptPrompt& kept : kept_) {
    if (certain == 0 || CommonTokens(kept.path, touch.path) < certain) continue;
    touch.sure = touch.sure || (kept.sure && kept.in_memory);
  }
  // Without a path it may be of anything: none stands for another one.
  std::erase_if(kept_, [&](const KeptPrompt& kept) {
    return kept.touch && certain > 0 && kept.path == touch.path && kept.tokens <= perhaps;
  });
  kept_.push_back(std::move(touch));
}

void Ledger::Clear() {
  ++generation_;
  kept_.clear();
}

void Ledger::NextEpoch() {
  Clear();
  ++epoch_;
}

void Ledger::Forget(KeptPrompt* kept) {
  kept->sure = kept->durable;
  kept->in_memory = false;
}

void Ledger::Evicted() {
  for (KeptPrompt& kept : kept_) Forget(&kept);
}

void Ledger::Unsure() {
  for (KeptPrompt& kept : kept_) kept.sure = kept.durable = false;
}

void Ledger::Damaged() {
  Unsure();
  damaged_ = true;
}

void Ledger::Settle() {
  if (!setup_.disk || profile_.persists == Persists::kNever || damaged_) return;
  for (KeptPrompt& kept : kept_) kept.durable = kept.durable || kept.sure;
}

void Ledger::Restart() {
  damaged_ = false;
  if (!setup_.disk || profile_.persists == Persists::kNever) return Clear();
  Evicted();
}

void Ledger::Save(int key) {
  SavedStore& saved = saved_[key];
  saved = {true, epoch_, {}, {}, {}};
  for (int32_t node = 0; node < std::ssize(nodes_); ++node) {
    if (At(node).kept == generation_) saved.published.push_back(node);
  }
  for (const KeptPrompt& kept : kept_) {
    if (kept.touch) continue;
    (kept.sure && kept.in_memory ? saved.sure : saved.perhaps).push_back(kept);
  }
}

void Ledger::Load(int key) {
  const SavedStore& saved = saved_[key];
  if (!saved.is_there || saved.epoch != epoch_) return;
  for (const int32_t node : saved.published) Publish(node);
  const int64_t now = clock_ + 1;
  // In which order they come is nobody's promise, and a longer one drops what came before it.
  const auto has_longer = [&](const NodePath& path) {
    const auto goes_on = [&](const KeptPrompt& other) {
      return other.path.size() > path.size() && other.path[path.size() - 1] == path.back();
    };
    return std::any_of(saved.sure.begin(), saved.sure.end(), goes_on) ||
           std::any_of(saved.perhaps.begin(), saved.perhaps.end(), goes_on);
  };
  for (const KeptPrompt& prompt : saved.sure) {
    Keep(prompt.path, !profile_.superseded_dropped || !has_longer(prompt.path),
         std::ssize(prompt.path), prompt.shortest);
  }
  for (const KeptPrompt& prompt : saved.perhaps) {
    Keep(prompt.path, /*sure=*/false, std::ssize(prompt.path), prompt.shortest);
  }
  for (KeptPrompt& kept : kept_) kept.used = std::min(kept.used, now);
}

int64_t Ledger::KeptTokens() const {
  int64_t tokens = 0;
  for (const KeptPrompt& kept : kept_) {
    tokens += kept.touch ? 0 : InBlocks(kept.tokens);
  }
  return tokens;
}

void Ledger::ApplyBudget(int64_t held_tokens) {
  const int64_t held = started_.holds_requests ? held_tokens : 0;
  const auto prompts =
      std::count_if(kept_.begin(), kept_.end(), [](const KeptPrompt& kept) { return !kept.touch; });
  // Which prompt goes where there are too many of them is nobody's promise.
  if (setup_.max_entries > 0 && prompts > setup_.max_entries) return Evicted();
  if (held + KeptTokens() <= started_.capacity_tokens) return;
  if (!profile_.evicts_lru) return Evicted();
  std::vector<KeptPrompt*> recent;
  for (KeptPrompt& kept : kept_) recent.push_back(&kept);
  std::sort(recent.begin(), recent.end(),
            [](const KeptPrompt* a, const KeptPrompt* b) { return a->used > b->used; });
  int64_t tokens = held;
  for (auto first = recent.begin(); first != recent.end();) {
    // Of those that came together nobody knows which goes first.
    const auto last = std::find_if(
        first, recent.end(), [&](const KeptPrompt* kept) { return kept->used != (*first)->used; });
    for (auto kept = first; kept != last; ++kept) tokens += InBlocks((*kept)->tokens);
    if (tokens > started_.capacity_tokens) std::for_each(first, last, Forget);
    first = last;
  }
}

int64_t Ledger::MostPublished(const NodePath& path) const {
  int64_t tokens = 0;
  for (const int32_t node : path) {
    if (At(node).kept != generation_) break;
    ++tokens;
  }
  return tokens;
}

int64_t Ledger::MostAllowed(int64_t prompt_tokens, bool all) const {
  const bool last = profile_.last == LastToken::kAlways || profile_.last == LastToken::kExact ||
                    (all && profile_.last == LastToken::kAsked);
  return prompt_tokens - (last ? 0 : 1);
}

PartialHit Ledger::Partial() const {
  const bool without_window = profile_.partial == PartialHit::kLastBlock && setup_.window == 0;
  return without_window ? PartialHit::kCommon : profile_.partial;
}

bool Ledger::HasWindowOf(const KeptPrompt& kept, int64_t tokens) const {
  const int64_t block = started_.block_tokens;
  const bool has_tail = profile_.tail_kept || profile_.grain == HitGrain::kToken;
  int64_t end = std::ssize(kept.path);
  if (!has_tail) end = end / block * block;
  const int64_t last_block = std::max<int64_t>(0, end - 1) / block * block;
  // The oldest row that the window of the next token has.
  const auto oldest = [&](int64_t hit) { return std::max<int64_t>(0, hit - (setup_.window - 1)); };
  return oldest(tokens) >= oldest(std::max(last_block, kept.shortest));
}

int64_t Ledger::DueOf(const KeptPrompt& kept, const NodePath& path, bool all) const {
  const PartialHit partial = Partial();
  const int64_t kept_tokens = std::ssize(kept.path);
  const int64_t asked = std::ssize(path);
  const int64_t common = CommonTokens(kept.path, path);
  // A look at a part keeps what has the part: it is no prompt that could be found as one.
  if (kept.touch && partial != PartialHit::kCommon) return 0;
  const bool is_exact = !kept.touch && common == kept_tokens && common == asked;
  const int64_t most =
      profile_.last == LastToken::kExact && !is_exact ? asked - 1 : MostAllowed(asked, all);
  if (partial == PartialHit::kLonger || partial == PartialHit::kPrefix) {
    const bool is_prefix = common == kept_tokens && common <= most;
    const bool is_longer = common == asked && partial == PartialHit::kLonger;
    const bool needs_trim =
        common == kept_tokens && common > most && partial == PartialHit::kLonger;
    if (!is_prefix && !is_longer && !needs_trim) return 0;
  }
  int64_t tokens = std::min(common, most);
  // A tail after the last block hits a prompt that ends with it.
  const bool hits_tail = profile_.tail_kept && is_exact && common <= most;
  if (profile_.grain == HitGrain::kBlock && !hits_tail) {
    tokens = tokens / started_.block_tokens * started_.block_tokens;
  }
  return partial != PartialHit::kLastBlock || HasWindowOf(kept, tokens) ? tokens : 0;
}

int64_t Ledger::Due(const NodePath& path, bool all, int64_t held) const {
  const int64_t block = started_.block_tokens;
  const int64_t room = started_.holds_requests
                           ? std::max<int64_t>(0, started_.capacity_tokens - held) / block * block
                           : started_.capacity_tokens;
  int64_t due = 0;
  for (const KeptPrompt& kept : kept_) {
    if (!kept.sure) continue;
    const int64_t tokens = DueOf(kept, path, all);
    due = std::max(due, kept.in_memory ? tokens : std::min(tokens, room));
  }
  return due;
}

}  // namespace kvcheck
