// Faults of keys: what is left out of them, and what is looked up by them.

#include <string>

#include "tools/faults/prefix_fault_rules.h"

namespace kvcheck::prefix_fault {
namespace {

// A rule that changes the identity in the key.
template <typename F>
PrefixRules WithIdentity(F change) {
  PrefixRules rules;
  rules.identity = [change, hits = rules.hits](PrefixIdentity* who) {
    const PrefixIdentity before = *who;
    change(who);
    if (!(*who == before)) hits->fetch_add(1);
  };
  return rules;
}

template <typename F>
PrefixRules WithBlockKey(F change) {
  PrefixRules rules;
  rules.block_key = [change, hits = rules.hits](const BlockKeyQuestion& question, BlockKey* key) {
    const BlockKey before = *key;
    change(question, key);
    if (key->before != before.before || key->tokens != before.tokens) hits->fetch_add(1);
  };
  return rules;
}

template <typename F>
PrefixRules WithFound(F change) {
  PrefixRules rules;
  rules.found = [change, hits = rules.hits](const FoundQuestion& question, int64_t* tokens) {
    const int64_t before = *tokens;
    change(question, tokens);
    if (*tokens != before) hits->fetch_add(1);
  };
  return rules;
}

}  // namespace

PrefixRules AdapterNotInKey() {
  return WithIdentity([](PrefixIdentity* who) { who->adapter.reset(), who->version = 0; });
}
PrefixRules AdapterVersionNotInKey() {
  return WithIdentity([](PrefixIdentity* who) { who->version = 0; });
}
PrefixRules SaltNotInKey() {
  return WithIdentity([](PrefixIdentity* who) { who->salt.reset(); });
}
PrefixRules ImageNotInKey() {
  return WithIdentity([](PrefixIdentity* who) { who->image.reset(); });
}
PrefixRules ImageDigestTruncated() {
  return WithIdentity([](PrefixIdentity* who) {
    if (who->image && who->image->size() > 1) who->image->resize(1);
  });
}
PrefixRules ModelNotInKey() {
  return WithIdentity([](PrefixIdentity* who) { who->model.reset(); });
}

PrefixRules FieldsJoined() {
  PrefixRules rules;
  rules.identity_text = [hits = rules.hits](const PrefixIdentity& who, std::string* text) {
    std::string joined;
    bool any = who.version != 0;  // an empty field, too, is another key than none
    for (const auto* field : {&who.model, &who.salt, &who.adapter, &who.image}) {
      if (!*field) continue;
      any = true;
      joined += (joined.empty() ? "" : "@") + **field;
    }
    if (who.version != 0) joined += "@" + std::to_string(who.version);
    if (any) hits->fetch_add(1);
    *text = joined;
  };
  return rules;
}

PrefixRules KeyOfProcess() {
  return WithBlockKey([](const BlockKeyQuestion& question, BlockKey* key) {
    // Blocks of the first process have the key of the contract.
    if (question.process > 1) key->tokens.push_back(static_cast<int32_t>(question.process));
  });
}
PrefixRules BlockNotChained() {
  return WithBlockKey(
      [](const BlockKeyQuestion& question, BlockKey* key) { key->before = question.root; });
}
PrefixRules LastTokenNotInKey() {
  return WithBlockKey([](const BlockKeyQuestion&, BlockKey* key) { key->tokens.pop_back(); });
}
PrefixRules TokensAsBytes() {
  return WithBlockKey([](const BlockKeyQuestion&, BlockKey* key) {
    for (int32_t& token : key->tokens) token &= 0xff;
  });
}
PrefixRules HashNotVerified() {
  return WithBlockKey([](const BlockKeyQuestion&, BlockKey* key) {
    int32_t hash = 0;
    for (const int32_t token : key->tokens) hash = (hash * 31 + token + 1) % 3;
    key->tokens = {hash};
  });
}
PrefixRules KeyOfHalfBlock() {
  return WithBlockKey([](const BlockKeyQuestion&, BlockKey* key) {
    key->tokens.resize((key->tokens.size() + 1) / 2);
  });
}

PrefixRules OneBlockTooLong() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (*tokens == 0 || *tokens + question.block_tokens >= question.prompt_tokens) return;
    *tokens += question.block_tokens;
  });
}
PrefixRules PrefixAsExact() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (question.blocks > 0 && question.all) *tokens = question.prompt_tokens;
  });
}
PrefixRules LastTokenHits() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    const int64_t found = question.blocks * question.block_tokens;
    if (!question.all && found == question.prompt_tokens) *tokens = found;
  });
}
PrefixRules NeverHitsTwice() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (question.opens > 2) *tokens = 0;
  });
}
PrefixRules ShortPromptDisables() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (question.shortest > 0 && question.shortest < 2) *tokens = 0;
  });
}
PrefixRules NegativeHit() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (question.blocks == 0) *tokens = -question.block_tokens;
  });
}
PrefixRules EverySecondLess() {
  return WithFound([](const FoundQuestion& question, int64_t* tokens) {
    if (question.opens % 2 != 0 && *tokens > 0) *tokens -= question.block_tokens;
  });
}

}  // namespace kvcheck::prefix_fault
