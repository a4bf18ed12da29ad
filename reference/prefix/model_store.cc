#include "reference/prefix/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {

ModelStore::ModelStore(PrefixRules rules, std::string name)
    : rules_(std::move(rules)), name_(std::move(name)) {}

PrefixCapabilities ModelStore::GetCapabilities() const {
  PrefixCapabilities capabilities;
  capabilities.name = name_;
  capabilities.version = "1";
  capabilities.prefix_profile.evicts_lru = true;
  capabilities.prefix_profile.persists = Persists::kClose;
  return capabilities;
}

void ModelStore::StartProcess(const PrefixSetup& setup, PrefixStarted* started) {
  setup_ = setup;
  layout_.emplace(setup);
  requests_ = {};
  index_.clear();
  counters_ = PrefixCounters();
  counters_.lookups = counters_.hits = counters_.hit_tokens = 0;
  shortest_ = 0;
  const int64_t count = setup.capacity_tokens / setup.block_tokens;
  blocks_.assign(static_cast<size_t>(count), Block());
  for (Block& block : blocks_) {
    block.rows.assign(static_cast<size_t>(setup.block_tokens * layout_->TokenBytes()), kUnwritten);
  }
  k_codec_.reset();
  v_codec_.reset();
  if (setup.k) {
    k_codec_.emplace(*setup.k, setup.x, setup.k_dim, Profile());
    v_codec_.emplace(*setup.v, setup.x, setup.v_dim, Profile());
  }
  ++process_;
  *started = {setup.block_tokens, count * setup.block_tokens, true};
}

OpResult ModelStore::Start(const PrefixSetup& setup, const std::string&, PrefixStarted* started) {
  keys_.clear();
  files_.clear();
  saved_ = {};
  epoch_ = process_ = clock_ = kill_at_ = 0;
  StartProcess(setup, started);
  return {};
}

OpResult ModelStore::Restart(const PrefixSetup& setup, bool, PrefixStarted* started) {
  kill_at_ = 0;
  StartProcess(setup, started);
  return {};
}

bool ModelStore::IsRefused(PrefixOpKind kind, bool legal, std::string_view why) {
  std::string_view reason = legal ? std::string_view() : why;
  if (rules_.legal) rules_.legal(kind, &reason);
  message_ = reason;
  return !reason.empty();
}

RowsOfTokens ModelStore::RowsOf(Block* block, int64_t first, int64_t tokens, int64_t position) {
  return {&*layout_,
          std::span(block->rows)
              .subspan(static_cast<size_t>(first * layout_->TokenBytes()),
                       static_cast<size_t>(tokens * layout_->TokenBytes())),
          tokens, position};
}

void ModelStore::Gather(const Request& request, int64_t tokens, PrefixRows* rows) {
  const int64_t token_bytes = layout_->TokenBytes();
  tokens_.assign(static_cast<size_t>(tokens * token_bytes), kUnwritten);
  for (int64_t token = 0; token < tokens; ++token) {
    const auto at = static_cast<size_t>(token / setup_.block_tokens);
    if (at >= request.blocks.size()) break;
    const Block& block = blocks_[static_cast<size_t>(request.blocks[at])];
    std::memcpy(tokens_.data() + token * token_bytes,
                block.rows.data() + token % setup_.block_tokens * token_bytes,
                static_cast<size_t>(token_bytes));
  }
  k_.resize(static_cast<size_t>(tokens * layout_->layers * layout_->heads * layout_->k_bytes));
  v_.resize(static_cast<size_t>(tokens * layout_->layers * layout_->heads * layout_->v_bytes));
  rows->blocks = request.blocks;
  rows->vectors = DenseVectors(setup_, tokens, k_.data(), v_.data());
}

OpResult ModelStore::Read(int index, PrefixRows* rows) {
  const Request& request = requests_[static_cast<size_t>(index)];
  Gather(request, request.tokens, rows);
  for (int64_t token = 0; token < request.tokens; ++token) {
    const std::byte* from = tokens_.data() + token * layout_->TokenBytes();
    for (int64_t layer = 0; layer < layout_->layers; ++layer) {
      for (int64_t head = 0; head < layout_->heads; ++head) {
        std::memcpy(k_.data() + (rows->vectors.K(layer, head, token) - k_.data()),
                    from + layout_->Offset(layer, head, TokenPart::kKey),
                    static_cast<size_t>(layout_->k_bytes));
        std::memcpy(v_.data() + (rows->vectors.V(layer, head, token) - v_.data()),
                    from + layout_->Offset(layer, head, TokenPart::kValue),
                    static_cast<size_t>(layout_->v_bytes));
      }
    }
  }
  return {};
}

OpResult ModelStore::Open(int index, std::span<const int32_t> prompt, const PrefixIdentity& who,
                          bool all, PrefixHit* hit) {
  Request& request = requests_[static_cast<size_t>(index)];
  request = Request();
  request.open = true;
  request.root = RootKey(who);
  request.epoch = epoch_;
  ++counters_.lookups;
  const std::vector<int64_t> keys = KeysOf(request.root, prompt);
  const int64_t block = setup_.block_tokens;
  FoundQuestion question;
  question.prompt_tokens = std::ssize(prompt);
  question.block_tokens = block;
  question.opens = counters_.lookups;
  question.shortest = shortest_;
  question.all = all;
  const int64_t most = (std::ssize(prompt) - (all ? 0 : 1)) / block;
  hit->tier = PrefixTier::kMemory;
  for (const int64_t key : keys) {
    int64_t id = Find(key);
    if (id >= 0) {
      Pin(id, blocks_[static_cast<size_t>(id)].refs > 0 ? RefEvent::kHit : RefEvent::kRevival);
    } else if (setup_.disk) {
      const auto file = files_.find(FileName(key));
      std::vector<std::byte> rows;
      if (file == files_.end() || !ReadRecord(file->second, key, &rows)) break;
      id = Take();
      if (id < 0) break;
      Block& taken = blocks_[static_cast<size_t>(id)];
      taken.rows = std::move(rows);
      taken.key = key;
      taken.coded = setup_.k.has_value();
      index_[key] = id;
      hit->tier = PrefixTier::kDisk;
      if (rules_.restored) {
        rules_.restored(RowsOf(&taken, 0, block, std::ssize(request.blocks) * block));
      }
    } else {
      break;
    }
    request.blocks.push_back(id);
  }
  question.blocks = std::ssize(request.blocks);
  int64_t tokens = std::min(question.blocks, most) * block;
  if (rules_.found) rules_.found(question, &tokens);
  const int64_t used = std::max<int64_t>(0, (tokens + block - 1) / block);
  while (std::ssize(request.blocks) > used) {
    Release(request.blocks.back(), RefEvent::kTrim);
    request.blocks.pop_back();
  }
  // Whatever a rule has said, a request has none, or some of its prompt.
  request.tokens = request.longest = std::clamp<int64_t>(tokens, 0, std::ssize(prompt));
  request.ids.assign(prompt.begin(), prompt.begin() + request.tokens);
  hit->tokens = tokens;
  Read(index, &hit->rows);
  if (rules_.shown && request.tokens > 0) {
    RowsOfTokens shown = {&*layout_, tokens_, request.tokens, 0};
    rules_.shown(shown);
    // What is shown is what the request has.
    for (int64_t token = 0; token < request.tokens; ++token) {
      const auto at = static_cast<size_t>(token / block);
      if (at >= request.blocks.size()) break;
      std::memcpy(blocks_[static_cast<size_t>(request.blocks[at])].rows.data() +
                      token % block * layout_->TokenBytes(),
                  tokens_.data() + token * layout_->TokenBytes(),
                  static_cast<size_t>(layout_->TokenBytes()));
    }
    Read(index, &hit->rows);
  }
  counters_.hits += tokens > 0 ? 1 : 0;
  counters_.hit_tokens += tokens;
  if (rules_.publishes && Does(PublishEvent::kBeforeWriting, false)) {
    Request ahead = request;
    ahead.ids.assign(prompt.begin(), prompt.end());
    ahead.tokens = ahead.longest = std::ssize(prompt);
    while (std::ssize(ahead.blocks) < ahead.tokens / block) {
      const int64_t id = Take();
      if (id < 0) break;
      ahead.blocks.push_back(id);
    }
    Publish(&ahead, true);
    for (size_t i = request.blocks.size(); i < ahead.blocks.size(); ++i) {
      blocks_[static_cast<size_t>(ahead.blocks[i])].refs = 0;
    }
  }
  return {};
}

void ModelStore::CopyIn(Request* request, int64_t token, const PrefixVectors& vectors,
                        int64_t from) {
  const auto at = static_cast<size_t>(token / setup_.block_tokens);
  Block& block = blocks_[static_cast<size_t>(request->blocks[at])];
  const RowsOfTokens rows = RowsOf(&block, token % setup_.block_tokens, 1, token);
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    for (int64_t head = 0; head < layout_->heads; ++head) {
      for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
        const std::span<std::byte> out = rows.Vector(0, layer, head, part);
        std::memcpy(out.data(), VectorAt(vectors, layer, head, from, part), out.size());
      }
    }
  }
  if (rules_.written) rules_.written(rows);
}

OpResult ModelStore::Write(int index, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                           bool* full) {
  const bool fits_setup = vectors.dtype == setup_.x && vectors.layers == setup_.layers &&
                          vectors.kv_heads == setup_.kv_heads && vectors.k_dim == setup_.k_dim &&
                          vectors.v_dim == setup_.v_dim && vectors.tokens == std::ssize(tokens);
  if (IsRefused(PrefixOpKind::kWrite, fits_setup, "vectors of another shape or type")) {
    return Refusal();
  }
  Request& request = requests_[static_cast<size_t>(index)];
  *full = false;
  if (!fits_setup) return {};  // a rule has let it pass
  const int64_t block = setup_.block_tokens;
  const int64_t count = std::ssize(tokens);
  const int64_t have = std::ssize(request.blocks);
  const int64_t want = (request.tokens + count + block - 1) / block;
  // A block that others have, or may find, is copied before it is written.
  bool shares = false;
  if (request.tokens % block != 0) {
    const Block& last = blocks_[static_cast<size_t>(request.blocks.back())];
    shares = last.refs > 1 || last.key >= 0;
    if (shares && rules_.copy_on_write) rules_.copy_on_write(&shares);
  }
  int64_t needed = want - have + (shares ? 1 : 0);
  const int64_t available = FreeCount() + EvictableCount();
  if (shares && needed > available &&
      blocks_[static_cast<size_t>(request.blocks.back())].refs <= 1) {
    // Where there is no room for the copy, the kept block is forgotten, and the request's own.
    Unpublish(&blocks_[static_cast<size_t>(request.blocks.back())]);
    shares = false;
    --needed;
  }
  bool fits = needed <= available;
  if (rules_.fits) rules_.fits(needed, available, &fits);
  if (!fits) {
    *full = true;
    bool half_done = false;
    if (rules_.full_write) rules_.full_write(&half_done);
    if (half_done && request.tokens > 0) {
      const int64_t last = request.tokens - 1;
      CopyIn(&request, last, vectors, 0);
    }
    return {};
  }
  if (shares) {
    const int64_t id = Take();
    if (id < 0) return *full = true, OpResult();
    const Block& last = blocks_[static_cast<size_t>(request.blocks.back())];
    blocks_[static_cast<size_t>(id)].rows = last.rows;
    blocks_[static_cast<size_t>(id)].coded = last.coded;
    Release(request.blocks.back(), RefEvent::kTrim);
    request.blocks.back() = id;
  }
  while (std::ssize(request.blocks) < want) {
    const int64_t id = Take();
    if (id < 0) return *full = true, OpResult();
    request.blocks.push_back(id);
  }
  request.ids.resize(static_cast<size_t>(request.tokens));
  request.ids.insert(request.ids.end(), tokens.begin(), tokens.end());
  for (int64_t i = 0; i < count; ++i) CopyIn(&request, request.tokens + i, vectors, i);
  request.tokens += count;
  request.longest = std::max(request.longest, request.tokens);
  return {};
}

bool ModelStore::Does(PublishEvent event, bool does) const {
  if (rules_.publishes) rules_.publishes(event, &does);
  return does;
}

bool ModelStore::Does(ForgetEvent event) const {
  bool does = true;
  if (rules_.forgets) rules_.forgets(event, &does);
  return does;
}

void ModelStore::StoreInCodes(const RowsOfTokens& rows) {
  std::vector<std::byte> stored;
  std::vector<double> values;
  for (int64_t token = 0; token < rows.tokens; ++token) {
    for (int64_t layer = 0; layer < layout_->layers; ++layer) {
      for (int64_t head = 0; head < layout_->heads; ++head) {
        for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
          VectorCodec& codec = part == TokenPart::kKey ? *k_codec_ : *v_codec_;
          const std::span<std::byte> vector = rows.Vector(token, layer, head, part);
          stored.resize(codec.bytes());
          values.resize(static_cast<size_t>(layout_->Dim(part)));
          codec.Encode(vector.data(), stored.data(), head);
          codec.Decode(stored.data(), values.data(), head);
          EncodeFrom(values, setup_.x, vector.data());
        }
      }
    }
  }
}

void ModelStore::Publish(Request* request, bool keep) {
  const int64_t block = setup_.block_tokens;
  bool does = keep;
  if (!keep) does = Does(PublishEvent::kUnkept, false);
  if (keep) does = Does(PublishEvent::kClose, true);
  if (request->epoch != epoch_) does = keep && Does(PublishEvent::kOlderEpoch, false);
  if (!does) return;
  int64_t tokens = request->tokens;
  if (rules_.live_tokens) rules_.live_tokens(request->longest, &tokens);
  tokens = std::min(tokens, std::ssize(request->ids));
  if (shortest_ == 0 || tokens < shortest_) shortest_ = tokens;
  std::vector<int64_t> keys =
      KeysOf(request->root, std::span(request->ids).first(static_cast<size_t>(tokens)));
  if (tokens % block != 0 && Does(PublishEvent::kTail, false)) {
    std::vector<int32_t> tail(request->ids.begin() + tokens / block * block,
                              request->ids.begin() + tokens);
    // As if the rest of the block were there.
    for (int32_t next = 0; std::ssize(tail) < block; ++next) tail.push_back(next % 2);
    const int64_t before = keys.empty() ? request->root : keys.back();
    keys.push_back(KeyOf(request->root, before, std::ssize(keys), tail));
  }
  const bool in_codes = setup_.k.has_value() && tokens >= setup_.quantize_from;
  for (size_t i = 0; i < keys.size() && i < request->blocks.size(); ++i) {
    Block& mine = blocks_[static_cast<size_t>(request->blocks[i])];
    if (Find(keys[i]) < 0 && mine.key < 0) {
      const RowsOfTokens rows = RowsOf(&mine, 0, block, static_cast<int64_t>(i) * block);
      // Who else reads the block goes on reading what was written.
      if (mine.refs <= 1 && in_codes && !mine.coded) {
        StoreInCodes(rows);
        mine.coded = true;
      }
      if (rules_.stored) rules_.stored(rows);
      mine.key = keys[i];
      index_[keys[i]] = request->blocks[i];
    }
    bool writes = setup_.disk && !HasFile(keys[i]);
    if (setup_.disk && rules_.writes_block) {
      rules_.writes_block(static_cast<int64_t>(i), std::ssize(keys), &writes);
    }
    const int64_t id = Find(keys[i]);
    if (writes && id >= 0) WriteFile(keys[i], blocks_[static_cast<size_t>(id)].rows);
  }
}

OpResult ModelStore::Close(int index, bool keep) {
  Request& request = requests_[static_cast<size_t>(index)];
  Publish(&request, keep);
  // The last block is released first, so that what others share is the most recent.
  for (size_t i = request.blocks.size(); i > 0; --i) {
    Release(request.blocks[i - 1], RefEvent::kClose);
  }
  request = Request();
  return {};
}

OpResult ModelStore::Fork(int index, int out) {
  Request& request = requests_[static_cast<size_t>(index)];
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    Pin(request.blocks[i], RefEvent::kFork);
    if (rules_.forked) {
      const int64_t first = static_cast<int64_t>(i) * setup_.block_tokens;
      rules_.forked(RowsOf(&blocks_[static_cast<size_t>(request.blocks[i])], 0,
                           std::min(setup_.block_tokens, request.tokens - first), first));
    }
  }
  requests_[static_cast<size_t>(out)] = request;
  return {};
}

OpResult ModelStore::TrimTo(int index, int64_t tokens) {
  Request& request = requests_[static_cast<size_t>(index)];
  const bool legal = tokens >= 0 && tokens <= request.tokens;
  if (IsRefused(PrefixOpKind::kTrimTo, legal, "a request cannot be trimmed to what it has not")) {
    return Refusal();
  }
  if (!legal) return {};  // a rule has let it pass
  request.tokens = tokens;
  const int64_t want = (tokens + setup_.block_tokens - 1) / setup_.block_tokens;
  while (std::ssize(request.blocks) > want) {
    Release(request.blocks.back(), RefEvent::kTrim);
    request.blocks.pop_back();
  }
  return {};
}

OpResult ModelStore::Evict(int64_t tokens) {
  while (FreeCount() * setup_.block_tokens < tokens && EvictOne()) {
  }
  return {};
}

OpResult ModelStore::Clear() {
  if (Does(ForgetEvent::kClearMemory)) {
    for (Block& block : blocks_) Unpublish(&block);
  }
  if (Does(ForgetEvent::kClearDisk)) {
    while (!files_.empty()) {
      CountWrite();
      files_.erase(files_.begin());
    }
  }
  return {};
}

OpResult ModelStore::Epoch() {
  // First of all, so that a process that is killed within goes on in the new one.
  CountWrite();
  ++epoch_;
  if (Does(ForgetEvent::kEpochMemory)) {
    for (Block& block : blocks_) Unpublish(&block);
  }
  if (Does(ForgetEvent::kEpochDisk)) {
    while (!files_.empty()) {
      CountWrite();
      files_.erase(files_.begin());
    }
  }
  return {};
}

OpResult ModelStore::Save(int key) {
  SavedStore saved = {true, SetupText(), epoch_, {}};
  std::vector<const Block*> kept;
  for (const Block& block : blocks_) {
    if (block.key >= 0) kept.push_back(&block);
  }
  std::sort(kept.begin(), kept.end(),
            [](const Block* a, const Block* b) { return a->used < b->used; });
  for (const Block* block : kept) saved.blocks.push_back({block->key, block->rows});
  CountWrite();
  saved_[static_cast<size_t>(key)] = std::move(saved);
  return {};
}

OpResult ModelStore::Load(int key) {
  const SavedStore& saved = saved_[static_cast<size_t>(key)];
  const bool is_ours = saved.is_there && saved.setup == SetupText() && saved.epoch == epoch_;
  if (IsRefused(PrefixOpKind::kLoad, is_ours, "nothing is saved there that fits this store")) {
    return Refusal();
  }
  if (!saved.is_there || saved.setup != SetupText()) return {};  // a rule has let it pass
  for (const auto& [block_key, rows] : saved.blocks) {
    const int64_t known = Find(block_key);
    if (known >= 0) {
      blocks_[static_cast<size_t>(known)].used = ++clock_;
      continue;
    }
    const int64_t id = Take();
    if (id < 0) continue;
    Block& block = blocks_[static_cast<size_t>(id)];
    block.rows = rows;
    block.coded = setup_.k.has_value();
    block.key = block_key;
    block.refs = 0;
    index_[block_key] = id;
    if (setup_.disk && !HasFile(block_key)) WriteFile(block_key, block.rows);
  }
  return {};
}

void ModelStore::Observe(PrefixCounters* counters) {
  *counters = counters_;
  counters->blocks_total = std::ssize(blocks_);
  counters->blocks_free = FreeCount();
  counters->blocks_held = std::count_if(blocks_.begin(), blocks_.end(),
                                        [](const Block& block) { return block.refs > 0; });
  counters->blocks_cached = std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) {
    return block.refs <= 0 && block.key >= 0;
  });
  const int64_t block_bytes = setup_.block_tokens * layout_->TokenBytes();
  counters->bytes = (counters->blocks_held + counters->blocks_cached) * block_bytes;
  counters->budget_bytes = std::ssize(blocks_) * block_bytes;
  if (rules_.counters) rules_.counters(counters);
}

}  // namespace kvcheck
