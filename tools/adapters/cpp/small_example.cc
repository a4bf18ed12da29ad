// The smallest cache: one row, kept as it is given, that can be appended to, trimmed and copied.
//   kvcheck fuzz --impl ./small_example
//   kvcheck fuzz --impl './small_example --broken'      trims a token too few

#include "kvcheck_adapter.h"

using namespace kvcheck_adapter;

bool broken = false;

struct SmallCache : Cache {
  void Append(const Array& new_k, const Array& new_v) override {
    if (new_k.extents.size() != 4 || new_v.extents.size() != 4 ||
        new_k.extents[2] != new_v.extents[2]) {
      throw Refused("K and V of as many columns each, as (rows, heads, columns, channels)");
    }
    const Array joined = Joined(k, new_k, 2);
    v = Joined(v, new_v, 2);  // both are refused, or neither
    k = joined;
    step = new_k.extents[2];
  }
  int64_t Trim(int64_t count) override {
    if (count < 0) throw Refused("a negative number of tokens");
    count = std::min(count, Tokens());
    const int64_t left = Tokens() - count + (broken && count > 1 ? 1 : 0);
    k = Part(k, 2, 0, left);
    v = Part(v, 2, 0, left);
    step = 0;  // nobody asks for attention until the next append
    return count;
  }
  std::unique_ptr<Cache> Copy() const override {
    auto copy = std::make_unique<SmallCache>(*this);
    copy->step = 0;  // a copy starts without a step
    return copy;
  }
  State Observe() const override {
    State state;
    state.rows = 1;
    state.queries = step;
    state.k = {k};
    state.v = {v};
    state.offsets = {Tokens()};
    state.retained = Array("b8", {1, Tokens()});
    for (std::byte& held : state.retained->bytes) held = std::byte{1};
    state.visible = Array("b8", {1, step, Tokens()});
    for (int64_t query = 0; query < step; ++query) {  // causal: up to the query's own token
      for (int64_t token = 0; token <= Tokens() - step + query; ++token) {
        state.visible->bytes[static_cast<size_t>(query * Tokens() + token)] = std::byte{1};
      }
    }
    return state;
  }
  int64_t Tokens() const { return k.extents[2]; }

  Array k, v;        // (1, kv_heads, tokens, channels)
  int64_t step = 0;  // columns of the last append, while they can be asked about
};

struct Small : Adapter {
  Greeting Greet() override {
    CacheSpace space;
    space.layouts = {"linear"};
    space.formats = {"f32", "f16", "bf16"};
    space.rows = "single";
    space.padding = false;
    space.stored_as_given = true;
    space.operations = {"new", "append", "trim", "copy", "drop"};
    Greeting greeting{"small_example", "1", {"cache"}};
    greeting.cache_spaces = {space};
    return greeting;
  }
  void Start(const Setup& given) override { setup = given; }
  std::unique_ptr<Cache> New(const NewCache&) override {
    auto cache = std::make_unique<SmallCache>();
    cache->k = Array(setup.x, {1, setup.kv_heads, 0, setup.k_dim});
    cache->v = Array(setup.x, {1, setup.kv_heads, 0, setup.v_dim});
    return cache;
  }
  Setup setup;
};

int main(int argc, char** argv) {
  broken = argc > 1 && argv[1] == std::string("--broken");
  Small adapter;
  return Serve(adapter);
}
