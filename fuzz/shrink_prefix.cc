#include "fuzz/shrink_prefix.h"

#include <algorithm>
#include <array>
#include <compare>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kvcheck {
namespace {

using Offer = std::function<bool(PrefixCase)>;

// What shrinking lowers, the first first.
struct PrefixSize {
  int64_t operations = 0;
  int64_t setup = 0;
  int64_t tokens = 0;
  int64_t options = 0;
  int64_t ids = 0;
  int64_t names = 0;
  auto operator<=>(const PrefixSize&) const = default;
};

int64_t SizeOfIdentity(const PrefixIdentity& who) {
  int64_t size = who.version;
  for (const auto* text : {&who.model, &who.salt, &who.adapter, &who.image}) {
    // A plain letter is plainer than anything else.
    if (!*text) continue;
    size += 4 + static_cast<int64_t>((*text)->size());
    for (const char c : **text) size += c == 'a' ? 0 : c == 'b' ? 1 : 2;
  }
  return size;
}

PrefixSize SizeOf(const PrefixCase& c) {
  PrefixSize size;
  const PrefixSetup& setup = c.setup;
  size.operations = std::ssize(c.ops);
  size.setup = setup.layers + setup.kv_heads + setup.k_dim + setup.v_dim + setup.window +
               setup.block_tokens + setup.capacity_tokens + setup.max_entries +
               (setup.disk ? 100 : 0) + (setup.k ? 100 : 0) + setup.quantize_from +
               (setup.observe == Observe::kLast ? 1 : 0) + static_cast<int64_t>(setup.data.seed) +
               (setup.x == DType::kFloat32 ? 0 : 10);
  for (const PrefixOp& op : c.ops) {
    size.names += op.request + op.target + op.key;
    size.options += (op.all ? 1 : 0) + (op.from ? 1 : 0) + (op.keep ? 1 : 0) +
                    (op.kill != 0 ? 2 : 0) + (op.killed ? 1 : 0) + (op.block_tokens ? 1 : 0) +
                    (op.x ? 1 : 0) + (op.count ? 1 + std::abs(*op.count) : 0) +
                    SizeOfIdentity(op.who) + op.kill + std::min<int64_t>(op.at, 64);
    for (const TokenRun& run : op.tokens) {
      size.tokens += run.count;
      size.ids += run.drawn ? 1000 : run.value * run.count;
    }
  }
  return size;
}

PrefixCase Without(const PrefixCase& c, size_t begin, size_t end) {
  PrefixCase less = c;
  less.ops.erase(less.ops.begin() + static_cast<std::ptrdiff_t>(begin),
                 less.ops.begin() + static_cast<std::ptrdiff_t>(end));
  return less;
}

// Halves, quarters, ... single operations go, the tail first.
bool RemoveChunks(const PrefixCase& c, const Offer& offer) {
  for (size_t size = c.ops.size() / 2; size > 0; size /= 2) {
    for (size_t end = c.ops.size(); end > 0; end -= std::min(end, size)) {
      if (offer(Without(c, end - std::min(end, size), end))) return true;
    }
  }
  return false;
}

// A request goes as a whole, with everything that names it.
bool RemoveRequests(const PrefixCase& c, const Offer& offer) {
  for (size_t open = 0; open < c.ops.size(); ++open) {
    if (c.ops[open].kind != PrefixOpKind::kOpen) continue;
    const int request = c.ops[open].request;
    PrefixCase less;
    less.setup = c.setup;
    bool gone = true;
    for (size_t i = 0; i < c.ops.size(); ++i) {
      const PrefixOp& op = c.ops[i];
      const std::vector<int> named = NamedRequests(op);
      const bool names = !named.empty() && named[0] == request;
      if (i > open && names && op.kind == PrefixOpKind::kOpen) gone = false;
      if (i < open || !names || !gone) less.ops.push_back(op);
    }
    if (offer(std::move(less))) return true;
  }
  return false;
}

bool RemovePairs(const PrefixCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const PrefixCase without = Without(c, i, i + 1);
    for (size_t j = i; j < without.ops.size(); ++j) {
      if (offer(Without(without, j, j + 1))) return true;
    }
  }
  return false;
}

bool SimplifySetup(const PrefixCase& c, const Offer& offer) {
  using Change = void (*)(PrefixSetup*);
  static constexpr Change kChanges[] = {
      [](PrefixSetup* s) { s->k.reset(), s->v.reset(), s->quantize_from = 0; },
      [](PrefixSetup* s) { s->quantize_from = 0; },
      [](PrefixSetup* s) { s->disk = false; },
      [](PrefixSetup* s) { s->window = 0; },
      [](PrefixSetup* s) { s->max_entries = 0; },
      [](PrefixSetup* s) { s->layers = 1; },
      [](PrefixSetup* s) { s->layers = std::min<int64_t>(s->layers, 2); },
      [](PrefixSetup* s) { s->kv_heads = 1; },
      [](PrefixSetup* s) { s->k_dim = s->v_dim = 16; },
      [](PrefixSetup* s) { s->k_dim = 16; },
      [](PrefixSetup* s) { s->v_dim = 16; },
      [](PrefixSetup* s) { s->x = DType::kFloat32; },
      [](PrefixSetup* s) { s->observe = Observe::kEach; },
      [](PrefixSetup* s) { s->data.seed = 1; },
      [](PrefixSetup* s) {
        s->capacity_tokens = std::max(s->block_tokens, s->capacity_tokens / 2);
      },
      [](PrefixSetup* s) { s->capacity_tokens -= s->block_tokens; },
      [](PrefixSetup* s) { --s->max_entries; },
      [](PrefixSetup* s) { --s->window; },
  };
  for (const Change change : kChanges) {
    PrefixCase less = c;
    change(&less.setup);
    if (less.setup.max_entries < 0 || less.setup.window < 0) continue;
    if (offer(std::move(less))) return true;
  }
  return false;
}

// Every number of tokens becomes as many blocks of one token; of drawn runs alone their count.
TokenRuns Condensed(const TokenRuns& runs, int64_t block) {
  const std::vector<int32_t> tokens = Expand(runs);
  std::vector<int32_t> less;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(block)) {
    const size_t end = std::min(tokens.size(), at + static_cast<size_t>(block));
    // What tells blocks apart has to tell the tokens apart.
    int32_t value = 0;
    for (size_t i = at; i < end; ++i) value = (value * 3 + tokens[i]) % 1000;
    less.push_back(value);
  }
  return RunsOf(less);
}

bool SmallerBlocks(const PrefixCase& c, const Offer& offer) {
  const int64_t block = c.setup.block_tokens;
  if (block == 1) return false;
  PrefixCase less = c;
  less.setup.block_tokens = 1;
  less.setup.capacity_tokens = std::max<int64_t>(1, c.setup.capacity_tokens / block);
  for (PrefixOp& op : less.ops) {
    if (!op.tokens.empty()) op.tokens = Condensed(op.tokens, block);
    if (op.count) *op.count = (*op.count + block - 1) / block;
  }
  if (offer(std::move(less))) return true;
  PrefixCase half = c;
  half.setup.block_tokens = block / 2;
  return offer(std::move(half));
}

bool ShorterPrompts(const PrefixCase& c, const Offer& offer) {
  // A place of all prompts, as they share what stands before.
  size_t longest = 0;
  for (const PrefixOp& op : c.ops) longest = std::max(longest, Expand(op.tokens).size());
  for (size_t at = longest; at > 0; --at) {
    PrefixCase less = c;
    for (PrefixOp& op : less.ops) {
      std::vector<int32_t> tokens = Expand(op.tokens);
      if (op.kind != PrefixOpKind::kOpen || tokens.size() < at || tokens.size() == 1) continue;
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at - 1));
      op.tokens = RunsOf(tokens);
    }
    if (offer(std::move(less))) return true;
  }
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const std::vector<int32_t> tokens = Expand(c.ops[i].tokens);
    for (size_t cut = tokens.size() / 2; cut > 0; cut /= 2) {
      for (const bool front : {false, true}) {
        PrefixCase less = c;
        std::vector<int32_t> fewer = tokens;
        if (front) {
          fewer.erase(fewer.begin(), fewer.begin() + static_cast<std::ptrdiff_t>(cut));
        } else {
          fewer.resize(fewer.size() - cut);
        }
        less.ops[i].tokens = RunsOf(fewer);
        if (offer(std::move(less))) return true;
      }
    }
    if (c.ops[i].kind == PrefixOpKind::kWrite && !tokens.empty()) {
      PrefixCase less = c;
      less.ops[i].tokens.clear();
      if (offer(std::move(less))) return true;
    }
  }
  return false;
}

bool LowerIds(const PrefixCase& c, const Offer& offer) {
  std::set<int32_t> values;
  for (const PrefixOp& op : c.ops) {
    for (const int32_t token : Expand(op.tokens)) values.insert(token);
  }
  // One id becomes another, smaller one, everywhere.
  for (const int32_t value : values) {
    for (int32_t lower = 0; lower < std::min(value, 3); ++lower) {
      PrefixCase less = c;
      for (PrefixOp& op : less.ops) {
        std::vector<int32_t> tokens = Expand(op.tokens);
        std::replace(tokens.begin(), tokens.end(), value, lower);
        op.tokens = RunsOf(tokens);
      }
      if (offer(std::move(less))) return true;
    }
  }
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const std::vector<int32_t> tokens = Expand(c.ops[i].tokens);
    for (size_t at = 0; at < tokens.size(); ++at) {
      if (tokens[at] == 0) continue;
      PrefixCase less = c;
      std::vector<int32_t> lower = tokens;
      lower[at] = 0;
      less.ops[i].tokens = RunsOf(lower);
      if (offer(std::move(less))) return true;
    }
  }
  return false;
}

// Of one operation, and of an identity wherever it stands.
bool DropOptions(const PrefixCase& c, const Offer& offer) {
  using Change = void (*)(PrefixOp*);
  static constexpr Change kChanges[] = {
      [](PrefixOp* op) { op->all = false; },
      [](PrefixOp* op) { op->from.reset(); },
      [](PrefixOp* op) { op->keep = false; },
      [](PrefixOp* op) { op->kill = 0; },
      [](PrefixOp* op) { op->killed = false; },
      [](PrefixOp* op) { op->block_tokens.reset(); },
      [](PrefixOp* op) { op->x.reset(); },
      [](PrefixOp* op) {
        if (op->kind == PrefixOpKind::kWrite) op->count.reset();
      },
      [](PrefixOp* op) {
        if (op->count) *op->count = *op->count / 2;
      },
      [](PrefixOp* op) {
        if (op->count) *op->count -= *op->count > 0 ? 1 : -1;
      },
      [](PrefixOp* op) { op->kill = std::max<int64_t>(0, op->kill - 1); },
      [](PrefixOp* op) { op->at = 0; },
      [](PrefixOp* op) { op->at /= 2; },
      [](PrefixOp* op) { op->at = std::max<int64_t>(0, op->at - 1); },
      [](PrefixOp* op) { op->who = PrefixIdentity(); },
  };
  for (size_t i = 0; i < c.ops.size(); ++i) {
    for (const Change change : kChanges) {
      PrefixCase less = c;
      change(&less.ops[i]);
      if (less.ops[i] != c.ops[i] && offer(std::move(less))) return true;
    }
  }
  return false;
}

bool PlainerIdentities(const PrefixCase& c, const Offer& offer) {
  using Change = void (*)(PrefixIdentity*);
  static constexpr Change kChanges[] = {
      [](PrefixIdentity* who) { *who = PrefixIdentity(); },
      [](PrefixIdentity* who) { who->model.reset(); },
      [](PrefixIdentity* who) { who->salt.reset(); },
      [](PrefixIdentity* who) { who->adapter.reset(), who->version = 0; },
      [](PrefixIdentity* who) { who->version = 0; },
      [](PrefixIdentity* who) { who->image.reset(); },
      [](PrefixIdentity* who) {
        for (auto* text : {&who->model, &who->salt, &who->adapter, &who->image}) {
          if (*text) *text = "a";
        }
      },
      [](PrefixIdentity* who) {
        for (auto* text : {&who->model, &who->salt, &who->adapter, &who->image}) {
          if (*text) *text = "b";
        }
      },
  };
  std::vector<PrefixIdentity> known;
  for (const PrefixOp& op : c.ops) {
    if (op.kind != PrefixOpKind::kOpen) continue;
    if (std::find(known.begin(), known.end(), op.who) == known.end()) known.push_back(op.who);
  }
  for (const PrefixIdentity& who : known) {
    for (const Change change : kChanges) {
      PrefixIdentity plainer = who;
      change(&plainer);
      if (plainer == who) continue;
      PrefixCase less = c;
      for (PrefixOp& op : less.ops) {
        if (op.kind == PrefixOpKind::kOpen && op.who == who) op.who = plainer;
      }
      if (offer(std::move(less))) return true;
    }
  }
  return false;
}

// Requests become A, B, ... and keys s0, ... in order of appearance; then earlier ones still.
bool RenameRequests(const PrefixCase& c, const Offer& offer) {
  PrefixCase renamed = c;
  std::array<int, kRequests> names;
  std::array<int, kSavedStores> keys;
  names.fill(-1);
  keys.fill(-1);
  int next = 0;
  int next_key = 0;
  const auto name = [&](int* request) {
    int& known = names[static_cast<size_t>(*request)];
    if (known < 0) known = next++;
    *request = known;
  };
  for (PrefixOp& op : renamed.ops) {
    const size_t named = NamedRequests(op).size();
    if (named > 0) name(&op.request);
    if (named > 1) name(&op.target);
    if (named == 0) op.request = 0;
    if (named < 2) op.target = 0;
    if (op.kind != PrefixOpKind::kSave && op.kind != PrefixOpKind::kLoad) continue;
    int& key = keys[static_cast<size_t>(op.key)];
    if (key < 0) key = next_key++;
    op.key = key;
  }
  if (offer(std::move(renamed))) return true;
  // From an open on, its request has an earlier name.
  for (size_t i = 0; i < c.ops.size(); ++i) {
    if (c.ops[i].kind != PrefixOpKind::kOpen) continue;
    for (int earlier = 0; earlier < c.ops[i].request; ++earlier) {
      PrefixCase other = c;
      for (size_t j = i; j < other.ops.size(); ++j) {
        PrefixOp& op = other.ops[j];
        if (j > i && op.kind == PrefixOpKind::kOpen && op.request == c.ops[i].request) break;
        if (!NamedRequests(op).empty() && op.request == c.ops[i].request) op.request = earlier;
      }
      if (offer(std::move(other))) return true;
    }
  }
  return false;
}

}  // namespace

ShrunkPrefix ShrinkPrefix(const PrefixCase& c,
                          const std::function<bool(const PrefixCase&)>& still_fails,
                          int64_t max_runs, const std::function<bool(const PrefixCase&)>& has) {
  using PrefixShrinker = Shrinker<PrefixCase, PrefixSize>;
  PrefixShrinker shrinker(c, {still_fails, has, SizeOf, ValidatePrefixCase, max_runs});
  constexpr PrefixShrinker::Step kSteps[] = {
      RemoveChunks,   RemoveRequests,    SimplifySetup, SmallerBlocks, ShorterPrompts,
      RenameRequests, PlainerIdentities, DropOptions,   LowerIds,      RemovePairs,
  };
  shrinker.Run(kSteps);
  return shrinker.result();
}

}  // namespace kvcheck
