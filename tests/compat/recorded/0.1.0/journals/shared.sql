BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE "events" (
	number BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	content TEXT NOT NULL, 
	checksum BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,'NodesSeen','{"at_s":1795820928.7591474,"nodes":[{"name":"h1","gpus":2,"cpus":0.0},{"name":"h2","gpus":2,"cpus":0.0}]}',1175704981);
INSERT INTO "events" VALUES(2,'StudyRegistered','{"at_s":1795820928.7989397,"study":"s1","run":"5cd368cb1daf4713a250671d34cd3656","weight":1.0,"rungs":[{"name":"rung0","trials":3,"step":10},{"name":"rung1","trials":1,"step":40}],"barriers":true}',2650932694);
INSERT INTO "events" VALUES(3,'TrialRegistered','{"at_s":1795820928.7994013,"study":"s1","trial":"a","budget":40}',1442879508);
INSERT INTO "events" VALUES(4,'StageRegistered','{"at_s":1795820928.842832,"study":"s1","stage":"rung0"}',3858787559);
INSERT INTO "events" VALUES(5,'TargetSet','{"at_s":1795820928.843292,"trial":"s1/a","step":10,"stage":"rung0"}',3475010336);
INSERT INTO "events" VALUES(6,'GpusRequested','{"at_s":1795820928.84442,"trial":"s1/a","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',1989536829);
INSERT INTO "events" VALUES(7,'TrialRegistered','{"at_s":1795820928.8445363,"study":"s1","trial":"d","budget":40}',1814541705);
INSERT INTO "events" VALUES(8,'TargetSet','{"at_s":1795820928.8445914,"trial":"s1/d","step":10,"stage":"rung0"}',3566010118);
INSERT INTO "events" VALUES(9,'GpusRequested','{"at_s":1795820928.84468,"trial":"s1/d","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',2999284967);
INSERT INTO "events" VALUES(10,'Allocated','{"at_s":1795820928.8664167,"policy":"tiresias","generation":1,"state":{"gpu_s":[]},"grants":{"s1/a":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0}},"devices":{"s1/a":[["h1",0]],"s1/d":[["h1",1]]}}',868008334);
INSERT INTO "events" VALUES(11,'TrialRegistered','{"at_s":1795820928.8789003,"study":"s1","trial":"broken","budget":40}',3637598760);
INSERT INTO "events" VALUES(12,'TargetSet','{"at_s":1795820928.8790398,"trial":"s1/broken","step":10,"stage":"rung0"}',722723211);
INSERT INTO "events" VALUES(13,'GpusRequested','{"at_s":1795820928.8791676,"trial":"s1/broken","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',2684847069);
INSERT INTO "events" VALUES(14,'StudyRegistered','{"at_s":1795820928.8978834,"study":"s2","run":"97387efef18541f0bb8761e50cfeb117","weight":1.0,"rungs":[{"name":"rung0","trials":3,"step":10},{"name":"rung1","trials":1,"step":40}],"barriers":true}',4196100333);
INSERT INTO "events" VALUES(15,'TrialRegistered','{"at_s":1795820928.8980594,"study":"s2","trial":"a","budget":40}',2361405020);
INSERT INTO "events" VALUES(16,'StageRegistered','{"at_s":1795820928.8981266,"study":"s2","stage":"rung0"}',2328925032);
INSERT INTO "events" VALUES(17,'TargetSet','{"at_s":1795820928.8981733,"trial":"s2/a","step":10,"stage":"rung0"}',1395873441);
INSERT INTO "events" VALUES(18,'Allocated','{"at_s":1795820928.8992925,"policy":"tiresias","generation":2,"state":{"gpu_s":[]},"grants":{"s1/a":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0}},"devices":{"s1/a":[["h1",0]],"s1/d":[["h1",1]],"s1/broken":[["h2",0]]}}',1271661828);
INSERT INTO "events" VALUES(19,'GpusRequested','{"at_s":1795820928.930075,"trial":"s2/a","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',1867123999);
INSERT INTO "events" VALUES(20,'TrialRegistered','{"at_s":1795820928.93097,"study":"s2","trial":"d","budget":40}',639327291);
INSERT INTO "events" VALUES(21,'TargetSet','{"at_s":1795820928.9310715,"trial":"s2/d","step":10,"stage":"rung0"}',2889631140);
INSERT INTO "events" VALUES(22,'GpusRequested','{"at_s":1795820928.931164,"trial":"s2/d","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',2309549996);
INSERT INTO "events" VALUES(23,'TrialRegistered','{"at_s":1795820928.9312308,"study":"s2","trial":"broken","budget":40}',280567629);
INSERT INTO "events" VALUES(24,'TargetSet','{"at_s":1795820928.9312673,"trial":"s2/broken","step":10,"stage":"rung0"}',462201975);
INSERT INTO "events" VALUES(25,'GpusRequested','{"at_s":1795820928.9313226,"trial":"s2/broken","request":{"iterations":40,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',3962327500);
INSERT INTO "events" VALUES(26,'Allocated','{"at_s":1795820928.9342253,"policy":"tiresias","generation":3,"state":{"gpu_s":[]},"grants":{"s1/a":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0},"s2/a":{"gpus":[["h2",1]],"servers":[],"batch_size":0}},"devices":{"s1/a":[["h1",0]],"s1/d":[["h1",1]],"s1/broken":[["h2",0]],"s2/a":[["h2",1]]}}',1728802534);
INSERT INTO "events" VALUES(27,'Planned','{"at_s":1795820928.9447002,"policy":"beamer","generation":2,"state":{"order":[{"item":"s1","jobs":["s1/a","s1/d"],"started_s":1795820928.8664167}]},"queues":8,"jobs":{}}',3946191646);
INSERT INTO "events" VALUES(28,'PlanChanged','{"at_s":1795820929.0315387,"policy":"beamer","generation":3,"state":{"keys":{"order":{"items":[-1,[{"item":"s1","jobs":["s1/a","s1/d","s1/broken"],"started_s":1795820928.8992925},{"item":"s2","jobs":["s2/a"],"started_s":1795820928.9342253}]]}},"drop":[]},"before":2,"queues":8,"jobs":{},"dropped":[]}',1991429571);
INSERT INTO "events" VALUES(29,'RanksSeen','{"at_s":1795820929.407141,"trial":"s2/a","processes":{"h2":{"pid":11341,"start":86502,"namespace":4026531836,"uid":null,"leased":false}}}',697826269);
INSERT INTO "events" VALUES(30,'RanksSeen','{"at_s":1795820929.47073,"trial":"s1/a","processes":{"h1":{"pid":11338,"start":86488,"namespace":4026531836,"uid":null,"leased":false}}}',1363617424);
INSERT INTO "events" VALUES(31,'RanksSeen','{"at_s":1795820929.472952,"trial":"s1/d","processes":{"h1":{"pid":11344,"start":86514,"namespace":4026531836,"uid":null,"leased":false}}}',1801551834);
INSERT INTO "events" VALUES(32,'TrialReported','{"at_s":1795820929.6448402,"trial":"s2/a","report":{"at_s":1795820929.5468562,"iteration":0.0,"loss":1.4825615061139277,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',146635345);
INSERT INTO "events" VALUES(33,'TrialReported','{"at_s":1795820929.6454139,"trial":"s2/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.02198158749996537,"sync_s":0.0,"sub_steps":1}],"costs":null}',4138142523);
INSERT INTO "events" VALUES(34,'TrialReported','{"at_s":1795820929.662584,"trial":"s2/a","report":{"at_s":1795820929.6411421,"iteration":5.0,"loss":1.588231425234654,"service_s":0.09435192400007963,"accuracy":0.28125,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1309443481);
INSERT INTO "events" VALUES(35,'TrialReported','{"at_s":1795820929.6717553,"trial":"s2/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.024337879999961842,"sync_s":0.0,"sub_steps":1}],"costs":null}',96703093);
INSERT INTO "events" VALUES(36,'TrialReported','{"at_s":1795820929.677132,"trial":"s2/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.0224199704999819,"sync_s":0.0,"sub_steps":1}],"costs":null}',4096689082);
INSERT INTO "events" VALUES(37,'TrialReported','{"at_s":1795820929.7146094,"trial":"s1/a","report":{"at_s":1795820929.5454443,"iteration":0.0,"loss":1.4825615061139277,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1285494545);
INSERT INTO "events" VALUES(38,'TrialReported','{"at_s":1795820929.716121,"trial":"s1/a","report":{"at_s":1795820929.6334639,"iteration":5.0,"loss":1.588231425234654,"service_s":0.08801953399995455,"accuracy":0.28125,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1439478783);
INSERT INTO "events" VALUES(39,'TrialReported','{"at_s":1795820929.717326,"trial":"s1/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.023144513500028552,"sync_s":0.0,"sub_steps":1}],"costs":null}',2916462016);
INSERT INTO "events" VALUES(40,'RanksSeen','{"at_s":1795820929.718082,"trial":"s1/broken","processes":{"h2":{"pid":11349,"start":86537,"namespace":4026531836,"uid":null,"leased":false}}}',169021722);
INSERT INTO "events" VALUES(41,'TrialReported','{"at_s":1795820929.7188423,"trial":"s1/d","report":{"at_s":1795820929.668677,"iteration":0.0,"loss":1.4825615061139277,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1663039835);
INSERT INTO "events" VALUES(42,'TrialReported','{"at_s":1795820929.7205982,"trial":"s1/d","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.014419842499989954,"sync_s":0.0,"sub_steps":1}],"costs":null}',1298044343);
INSERT INTO "events" VALUES(43,'TrialReported','{"at_s":1795820929.724542,"trial":"s1/d","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.022289515000011306,"sync_s":0.0,"sub_steps":1}],"costs":null}',672928560);
INSERT INTO "events" VALUES(44,'TrialReported','{"at_s":1795820929.783762,"trial":"s2/a","report":{"at_s":1795820929.7527542,"iteration":10.0,"loss":1.3594160000633893,"service_s":0.20597052800007987,"accuracy":0.390625,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1707782191);
INSERT INTO "events" VALUES(45,'TrialReported','{"at_s":1795820929.7854066,"trial":"s2/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.02147633350000433,"sync_s":0.0,"sub_steps":1}],"costs":null}',2246427320);
INSERT INTO "events" VALUES(46,'TrialReported','{"at_s":1795820929.8370037,"trial":"s1/a","report":{"at_s":1795820929.7488549,"iteration":10.0,"loss":1.3594160000633893,"service_s":0.20448805399996672,"accuracy":0.390625,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',3635818710);
INSERT INTO "events" VALUES(47,'TrialReported','{"at_s":1795820929.8392491,"trial":"s1/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.022877714999992804,"sync_s":0.0,"sub_steps":1}],"costs":null}',2765418217);
INSERT INTO "events" VALUES(48,'RunFinished','{"at_s":1795820929.843696,"trial":"s1/a","step":10}',3528898175);
INSERT INTO "events" VALUES(49,'TrialReported','{"at_s":1795820929.843881,"trial":"s1/d","report":{"at_s":1795820929.7606044,"iteration":5.0,"loss":1.0674578026390091,"service_s":0.09177135000004455,"accuracy":0.546875,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2938792906);
INSERT INTO "events" VALUES(50,'Allocated','{"at_s":1795820929.8473532,"policy":"tiresias","generation":4,"state":{"gpu_s":[]},"grants":{"s1/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0},"s2/a":{"gpus":[["h2",1]],"servers":[],"batch_size":0},"s2/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0}},"devices":{"s1/d":[["h1",1]],"s1/broken":[["h2",0]],"s2/a":[["h2",1]],"s2/d":[["h1",0]]}}',2397965838);
INSERT INTO "events" VALUES(51,'TrialReported','{"at_s":1795820929.8505292,"trial":"s1/d","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.021470726000018203,"sync_s":0.0,"sub_steps":1}],"costs":null}',2587832458);
INSERT INTO "events" VALUES(52,'PlanChanged','{"at_s":1795820929.852127,"policy":"beamer","generation":4,"state":{"keys":{"order":{"items":[{"keys":{"jobs":{"items":[-1,2]}},"drop":[]},{"keys":{"jobs":{"items":[1,["s2/d"]]},"started_s":{"value":1795820929.8473532}},"drop":[]}]}},"drop":[]},"before":3,"queues":8,"jobs":{},"dropped":[]}',2045958786);
INSERT INTO "events" VALUES(53,'RunFinished','{"at_s":1795820929.8592503,"trial":"s2/a","step":10}',2891688398);
INSERT INTO "events" VALUES(54,'Allocated','{"at_s":1795820929.8637848,"policy":"tiresias","generation":5,"state":{"gpu_s":[]},"grants":{"s1/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s1/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0},"s2/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s2/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0}},"devices":{"s1/d":[["h1",1]],"s1/broken":[["h2",0]],"s2/d":[["h1",0]],"s2/broken":[["h2",1]]}}',2372365483);
INSERT INTO "events" VALUES(55,'PlanChanged','{"at_s":1795820929.8657389,"policy":"beamer","generation":5,"state":{"keys":{"order":{"items":[1,{"keys":{"jobs":{"items":[-1,1]}},"drop":[]}]}},"drop":[]},"before":4,"queues":8,"jobs":{},"dropped":[]}',1280580749);
INSERT INTO "events" VALUES(56,'PlanChanged','{"at_s":1795820929.9097252,"policy":"beamer","generation":6,"state":{"keys":{"order":{"items":[1,{"keys":{"jobs":{"items":[1,["s2/broken"]]},"started_s":{"value":1795820929.8637848}},"drop":[]}]}},"drop":[]},"before":5,"queues":8,"jobs":{},"dropped":[]}',1294513801);
INSERT INTO "events" VALUES(57,'RunFailed','{"at_s":1795820930.0025356,"trial":"s1/broken","launch":1,"reason":"h2: rank 0 exited with code 2\nusage: python -m beamer.testing.trainer [-h] [--iterations ITERATIONS]\n                                        [--seed SEED]\n                                        [--batch-size BATCH_SIZE]\n                                        [--learning-rate LEARNING_RATE]\n                                        [--momentum MOMENTUM] [--work WORK]\n                                        [--pause-s PAUSE_S] [--every EVERY]\n                                        [--save-every SAVE_EVERY]\n                                        [--trace TRACE] [--gate GATE]\npython -m beamer.testing.trainer: error: argument --learning-rate: invalid float value: ''not-a-number''"}',100764645);
INSERT INTO "events" VALUES(58,'TrialReported','{"at_s":1795820930.0105753,"trial":"s1/d","report":{"at_s":1795820929.8659928,"iteration":10.0,"loss":0.814325587834551,"service_s":0.21033116400008112,"accuracy":0.640625,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2713139594);
INSERT INTO "events" VALUES(59,'TrialReported','{"at_s":1795820930.010804,"trial":"s1/d","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.022098560500012354,"sync_s":0.0,"sub_steps":1}],"costs":null}',2684882872);
INSERT INTO "events" VALUES(60,'RunFinished','{"at_s":1795820930.0108767,"trial":"s1/d","step":10}',3974229914);
INSERT INTO "events" VALUES(61,'Allocated','{"at_s":1795820930.0138357,"policy":"tiresias","generation":6,"state":{"gpu_s":[]},"grants":{"s2/d":{"gpus":[["h1",1]],"servers":[],"batch_size":0},"s2/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0},"s1/broken":{"gpus":[["h2",1]],"servers":[],"batch_size":0}},"devices":{"s2/d":[["h1",0]],"s2/broken":[["h2",1]],"s1/broken":[["h2",0]]}}',3683080512);
INSERT INTO "events" VALUES(62,'PlanChanged','{"at_s":1795820930.0312955,"policy":"beamer","generation":7,"state":{"keys":{"order":{"items":[{"keys":{"jobs":{"items":[1,-1]},"started_s":{"value":1795820928.8664167}},"drop":[]},1]}},"drop":[]},"before":6,"queues":8,"jobs":{},"dropped":[]}',3186564639);
INSERT INTO "events" VALUES(63,'TrialEnded','{"at_s":1795820930.0485132,"trial":"s1/a","status":"killed"}',1681809779);
INSERT INTO "events" VALUES(64,'PlanChanged','{"at_s":1795820930.0637567,"policy":"beamer","generation":8,"state":{"keys":{"order":{"items":[{"keys":{"jobs":{"items":[{"value":"s1/broken"}]},"started_s":{"value":1795820930.0138357}},"drop":[]},1]}},"drop":[]},"before":7,"queues":8,"jobs":{},"dropped":[]}',3033061684);
INSERT INTO "events" VALUES(65,'RanksSeen','{"at_s":1795820930.1138759,"trial":"s2/d","processes":{"h1":{"pid":11353,"start":86574,"namespace":4026531836,"uid":null,"leased":false}}}',1173919621);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	checksum BIGINT NOT NULL, 
	term BIGINT NOT NULL, seal BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "head" VALUES(1,65,1173919621,1,2083388143);
CREATE TABLE snapshots (
	number BIGINT NOT NULL, 
	checksum BIGINT NOT NULL, 
	content TEXT NOT NULL, 
	content_checksum BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
COMMIT;
