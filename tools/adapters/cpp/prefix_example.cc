// A cache across requests that keeps whole prompts, found by their tokens and by whose they are.
//   kvcheck fuzz --impl ./prefix_example
//   kvcheck fuzz --impl './prefix_example --broken'     prompts are found whosever they are
#include "kvcheck_adapter.h"

using namespace kvcheck_adapter;

struct Prompt {
  Identity who;
  Numbers tokens;
  Array k, v;  // (layers, kv_heads, tokens, channels)
};

struct Request : PrefixRequest, Prompt {
  Request(Prompt found, std::vector<Prompt>* all) : Prompt(std::move(found)), kept(all) {}
  bool Write(const Numbers& ids, const Array& new_k, const Array& new_v) override {
    std::tie(k, v) = std::pair(Joined(k, new_k, 2), Joined(v, new_v, 2));  // both or neither
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return true;
  }
  PrefixRows Read() const override { return {k, v, {}, {}}; }
  void Close(bool keep) override {
    if (keep && !tokens.empty()) kept->push_back(*this);
  }
  std::vector<Prompt>* kept;
};

struct PromptStore : PrefixAdapter {
  Greeting Greet() override {
    Greeting greeting{"prefix_example", "1", {"prefix"}};
    greeting.prefix_profile = "grain=token last=always partial=prefix";
    greeting.prefix_spaces = {PlainPrefixSpace({"open", "write", "read", "close", "clear"})};
    return greeting;
  }
  PrefixStarted Start(const PrefixSetup& s, const std::optional<std::string>&, bool) override {
    kept.clear();
    std::tie(nothing.k, nothing.v) = s.NoRows();
    return {1, s.capacity_tokens, false};
  }
  Hit Open(const Numbers& tokens, const Identity& who, bool) override {
    Prompt found = nothing;
    for (const Prompt& p : kept) {  // the longest that the prompt begins with
      if (!(p.who == who || broken) || !BeginsWith(tokens, p.tokens)) continue;
      if (p.tokens.size() > found.tokens.size()) found = p;
    }
    found.who = who;
    return {std::make_unique<Request>(found, &kept), static_cast<int64_t>(found.tokens.size()), ""};
  }
  void Clear() override { kept.clear(); }

  Prompt nothing;
  std::vector<Prompt> kept;
  bool broken = false;
};

int main(int argc, char** argv) {
  PromptStore store;
  store.broken = argc > 1 && argv[1] == std::string("--broken");
  return Serve(store);
}
