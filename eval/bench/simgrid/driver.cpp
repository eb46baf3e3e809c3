// Runs jobs that compute and synchronise in SimGrid: `driver DESCRIPTION --cfg=...` prints when each job ends.
//
// The description is what eval/bench/simgrid/description.py writes. The model is CM02 without what it adds to max-min fair
// sharing: no latency, hence no bound by a TCP window, no cross traffic, no factors. An iteration is that of
// beamer/network/kernels/fluid.py: its computing ends `compute` seconds after it began, its synchronisation starts
// (1 - overlap) `compute` seconds after it began, the flows of a phase run at once and phases one after another.
//
// Communications go from host to host and timers stand for computing, so that there are no actors, whose context switches
// would cost more than the network's model. All is started from the callbacks of what ended.

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace s4u = simgrid::s4u;
using simgrid::kernel::timer::Timer;

namespace {

constexpr int EXACT_BITS = 53; // integers below 2^53 are exact as double

struct Flow {
  size_t job;
  s4u::Host* from;
  s4u::Host* to;
  uint64_t units;
  s4u::CommPtr comm;
};

struct Job {
  double start;
  long iterations;
  double compute;
  double overlap;
  std::vector<std::vector<Flow>> phases;
  size_t phase  = 0;
  size_t flying = 0; // flows of the phase that still move
  int awaited   = 0; // of computing and synchronisation
  double end    = NAN;
};

std::vector<Job> jobs;
std::vector<s4u::CommPtr> ended; // kept until the callback that ended them has returned

template <class T> T read(std::istream& in)
{
  T value;
  if (not(in >> value))
    throw std::runtime_error("the description ends early or has a word in place of a number");
  return value;
}

void expect(std::istream& in, const char* word)
{
  if (auto found = read<std::string>(in); found != word)
    throw std::runtime_error("expected '" + std::string(word) + "', not '" + found + "'");
}

// Numbers are read as by strtod: streams round them likewise, but not every library reads them exactly.
double number(std::istream& in)
{
  return std::stod(read<std::string>(in));
}

// SimGrid takes whole bytes. Its unit is chosen here: 2^-k bit, by which sizes are as exact as double.
int exponent_of(double largest)
{
  return largest > 0 ? EXACT_BITS - 1 - static_cast<int>(std::ceil(std::log2(largest))) : 0;
}

void load(const std::string& path, s4u::NetZone* zone)
{
  std::ifstream in(path);
  if (not in)
    throw std::runtime_error("cannot read " + path);
  expect(in, "largest");
  const double unit = std::ldexp(1.0, exponent_of(number(in)));

  expect(in, "links");
  std::vector<s4u::Link*> links(read<size_t>(in));
  for (size_t i = 0; i < links.size(); i++)
    links[i] = zone->create_link("l" + std::to_string(i), unit * number(in))->set_latency(0.0)->seal();

  // A path is the route of a pair of hosts of its own, so that any list of links can be one.
  expect(in, "paths");
  const auto paths = read<size_t>(in);
  size_t count     = 2;
  while (count * (count - 1) < paths)
    count++;
  std::vector<s4u::Host*> hosts(count);
  for (size_t i = 0; i < count; i++)
    hosts[i] = zone->create_host("h" + std::to_string(i), 1.0)->seal();
  auto from = [&](size_t path) { return hosts[path / (count - 1)]; };
  auto to   = [&](size_t path) {
    const size_t i = path / (count - 1), j = path % (count - 1);
    return hosts[j < i ? j : j + 1];
  };
  for (size_t path = 0; path < paths; path++) {
    std::vector<s4u::LinkInRoute> hops;
    for (auto left = read<size_t>(in); left > 0; left--)
      hops.emplace_back(links.at(read<size_t>(in)));
    zone->add_route(from(path)->get_netpoint(), to(path)->get_netpoint(), nullptr, nullptr, hops, false);
  }
  zone->seal();

  expect(in, "jobs");
  jobs.resize(read<size_t>(in));
  for (size_t j = 0; j < jobs.size(); j++) {
    Job& job       = jobs[j];
    job.start      = number(in);
    job.iterations = read<long>(in);
    job.compute    = number(in);
    job.overlap    = number(in);
    job.phases.resize(read<size_t>(in));
    for (auto& phase : job.phases) {
      phase.resize(read<size_t>(in));
      for (Flow& flow : phase) {
        const auto path = read<size_t>(in);
        flow            = {j, from(path), to(path), static_cast<uint64_t>(std::llround(unit * number(in))), nullptr};
      }
    }
  }
}

void iterate(size_t j);

void finish_part(size_t j)
{
  Job& job = jobs[j];
  if (--job.awaited > 0)
    return;
  if (--job.iterations > 0)
    iterate(j);
  else
    job.end = s4u::Engine::get_clock();
}

void release(size_t j)
{
  Job& job = jobs[j];
  if (job.phase == job.phases.size()) {
    finish_part(j);
    return;
  }
  auto& phase = job.phases[job.phase];
  job.flying  = phase.size();
  for (Flow& flow : phase) {
    flow.comm = s4u::Comm::sendto_init();
    flow.comm->set_data(&flow);
    flow.comm->set_payload_size(flow.units)->set_source(flow.from)->set_destination(flow.to); // the last one starts it
  }
}

void iterate(size_t j)
{
  Job& job        = jobs[j];
  const double at = s4u::Engine::get_clock();
  job.phase       = 0;
  job.awaited     = 2;
  Timer::set(at + job.compute, [j]() { finish_part(j); });
  Timer::set(at + (1.0 - job.overlap) * job.compute, [j]() {
    ended.clear();
    release(j);
  });
}

void arrived(s4u::Activity const& activity)
{
  auto* flow = activity.get_data<Flow>();
  ended.push_back(std::move(flow->comm));
  Job& job = jobs[flow->job];
  if (--job.flying > 0)
    return;
  job.phase++;
  release(flow->job);
}

double cpu_s()
{
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

int main(int argc, char** argv)
{
  s4u::Engine engine(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: driver DESCRIPTION [--cfg=KEY:VALUE ...]\n";
    return 2;
  }
  try {
    load(argv[1], s4u::create_full_zone("zone"));
  } catch (const std::exception& problem) {
    std::cerr << "driver: " << problem.what() << "\n";
    return 2;
  }
  s4u::Activity::on_completion_cb(arrived);
  for (size_t j = 0; j < jobs.size(); j++)
    Timer::set(jobs[j].start, [j]() { iterate(j); });
  const double before = cpu_s();
  engine.run();
  std::printf("cpu %.9f\n", cpu_s() - before);
  for (const Job& job : jobs)
    std::printf("%.17g\n", job.end);
  ended.clear();
  return 0;
}
