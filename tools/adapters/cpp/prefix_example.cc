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

struct Request : PrefixRequest {
  Request(Prompt p, std::vector<Prompt>* all) : prompt(std::move(p)), kept(all) {}
  bool Write(const Numbers& ids, const Array& new_k, const Array& new_v) override {
    std::tie(prompt.k, prompt.v) =  // both or neither
        std::pair(Joined(prompt.k, new_k, 2), Joined(prompt.v, new_v, 2));
    prompt.tokens.insert(prompt.tokens.end(), ids.begin(), ids.end());
    return true;
  }
  PrefixRows Read() const override { return {prompt.k, prompt.v, {}, {}}; }
  void Close(bool keep) override {
    if (keep && !prompt.tokens.empty()) kept->push_back(prompt);
  }
  Prompt prompt;
  std::vector<Prompt>* kept;
};

struct PromptStore : PrefixAdapter {
  Greeting Greet() override {
    PrefixSpace space;
    space.quantizes = space.windows = space.entries = space.disk = space.tiers = false;
    space.operations = {"open", "write", "read", "close", "clear"};
    Greeting greeting{"prefix_example", "1", {"prefix"}};
    greeting.prefix_profile = "grain=token last=always partial=prefix";
    greeting.prefix_spaces = {space};
    return greeting;
  }
  PrefixStarted Start(const PrefixSetup& s, const std::optional<std::string>&, bool) override {
    kept.clear();
    nothing.k = Array(s.x, {s.layers, s.kv_heads, 0, s.k_dim});
    nothing.v = Array(s.x, {s.layers, s.kv_heads, 0, s.v_dim});
    return {1, s.capacity_tokens, false};
  }
  Hit Open(const Numbers& tokens, const Identity& who, bool) override {
    Prompt found = nothing;
    for (const Prompt& p : kept) {  // the longest that the prompt begins with
      if (!(p.who == who || broken) || p.tokens.size() > tokens.size()) continue;
      if (p.tokens.size() <= found.tokens.size()) continue;
      if (std::equal(p.tokens.begin(), p.tokens.end(), tokens.begin())) found = p;
    }
    const auto hit = static_cast<int64_t>(found.tokens.size());
    found.who = who;
    return {std::make_unique<Request>(found, &kept), hit, ""};
  }
  void Clear() override { kept.clear(); }

  bool broken = false;
  Prompt nothing;
  std::vector<Prompt> kept;
};

int main(int argc, char** argv) {
  PromptStore store;
  store.broken = argc > 1 && argv[1] == std::string("--broken");
  return Serve(store);
}
