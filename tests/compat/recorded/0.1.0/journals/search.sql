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
INSERT INTO "events" VALUES(1,'StudyRegistered','{"at_s":1795820887.2230706,"study":"s","run":"1","weight":1.0,"rungs":[{"name":"rung0","trials":3,"step":30},{"name":"rung1","trials":2,"step":90}],"barriers":true}',1832506948);
INSERT INTO "events" VALUES(2,'TrialRegistered','{"at_s":1795820887.2230706,"study":"s","trial":"a","budget":90}',3987443970);
INSERT INTO "events" VALUES(3,'StageRegistered','{"at_s":1795820887.2230706,"study":"s","stage":"rung0"}',2242732087);
INSERT INTO "events" VALUES(4,'TargetSet','{"at_s":1795820887.2230706,"trial":"s/a","step":30,"stage":"rung0"}',3964243997);
INSERT INTO "events" VALUES(5,'GpusRequested','{"at_s":1795820887.2230706,"trial":"s/a","request":{"iterations":90,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',431614525);
INSERT INTO "events" VALUES(6,'TrialRegistered','{"at_s":1795820887.2230706,"study":"s","trial":"b","budget":90}',263404279);
INSERT INTO "events" VALUES(7,'TargetSet','{"at_s":1795820887.2230706,"trial":"s/b","step":30,"stage":"rung0"}',2039722180);
INSERT INTO "events" VALUES(8,'GpusRequested','{"at_s":1795820887.2230706,"trial":"s/b","request":{"iterations":90,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',2576214405);
INSERT INTO "events" VALUES(9,'TrialRegistered','{"at_s":1795820887.2230706,"study":"s","trial":"c","budget":90}',1739852042);
INSERT INTO "events" VALUES(10,'TargetSet','{"at_s":1795820887.2230706,"trial":"s/c","step":30,"stage":"rung0"}',3946547682);
INSERT INTO "events" VALUES(11,'GpusRequested','{"at_s":1795820887.2230706,"trial":"s/c","request":{"iterations":90,"gpus":1,"min_gpus":0,"max_gpus":0,"gang":true,"epoch":5,"batch_size":64,"max_batch_size":0,"max_local_batch_size":0,"accumulates":false,"learning_rate":0.0,"max_learning_rate":0.0,"target_loss":null,"target_accuracy":null,"servers":false,"asynchronous":false,"worker_cpus":0.0,"server_cpus":0.0,"known_end":true,"traffic":{"sync_bytes":null,"collective":"ring","compute_s":null,"overlap":0.0}}}',4103250931);
INSERT INTO "events" VALUES(12,'NodesSeen','{"at_s":1795820887.2331834,"nodes":[{"name":"here","gpus":2,"cpus":0.0}]}',664333740);
INSERT INTO "events" VALUES(13,'Allocated','{"at_s":1795820887.2331834,"policy":"tiresias","generation":1,"state":{"gpu_s":[]},"grants":{"s/a":{"gpus":[["here",1]],"servers":[],"batch_size":0},"s/b":{"gpus":[["here",1]],"servers":[],"batch_size":0}},"devices":{"s/a":[["here",0]],"s/b":[["here",1]]}}',4046093020);
INSERT INTO "events" VALUES(14,'TrialReported','{"at_s":1795820887.2331834,"trial":"s/a","report":{"at_s":1795820887.3932858,"iteration":0.0,"loss":1.0,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1018412103);
INSERT INTO "events" VALUES(15,'TrialReported','{"at_s":1795820887.2331834,"trial":"s/a","report":{"at_s":1795820887.4973981,"iteration":5.0,"loss":0.16666666666666666,"service_s":0.10411226999997325,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2667085955);
INSERT INTO "events" VALUES(16,'TrialReported','{"at_s":1795820887.2331834,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.02025191900003165,"sync_s":0.0,"sub_steps":1}],"costs":null}',3316475731);
INSERT INTO "events" VALUES(17,'RanksSeen','{"at_s":1795820887.2331834,"trial":"s/a","processes":{"here":{"pid":11192,"start":82307,"namespace":4026531836,"uid":null,"leased":false}}}',2988284338);
INSERT INTO "events" VALUES(18,'RanksSeen','{"at_s":1795820887.2331834,"trial":"s/b","processes":{"here":{"pid":11195,"start":82326,"namespace":4026531836,"uid":null,"leased":false}}}',781426507);
INSERT INTO "events" VALUES(19,'TrialReported','{"at_s":1795820887.5995624,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020261144000073728,"sync_s":0.0,"sub_steps":1}],"costs":null}',3726027572);
INSERT INTO "events" VALUES(20,'TrialReported','{"at_s":1795820887.5995624,"trial":"s/b","report":{"at_s":1795820887.5867987,"iteration":0.0,"loss":1.0,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2873363206);
INSERT INTO "events" VALUES(21,'TrialReported','{"at_s":1795820887.7028306,"trial":"s/a","report":{"at_s":1795820887.607316,"iteration":10.0,"loss":0.09090909090909091,"service_s":0.2160856650000369,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1641367982);
INSERT INTO "events" VALUES(22,'TrialReported','{"at_s":1795820887.7028306,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.02025191900003165,"sync_s":0.0,"sub_steps":1}],"costs":null}',853673207);
INSERT INTO "events" VALUES(23,'TrialReported','{"at_s":1795820887.7028306,"trial":"s/b","report":{"at_s":1795820887.6927123,"iteration":5.0,"loss":0.16666666666666666,"service_s":0.1076867179999681,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',485515539);
INSERT INTO "events" VALUES(24,'TrialReported','{"at_s":1795820887.7028306,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020456117999970047,"sync_s":0.0,"sub_steps":1}],"costs":null}',1317238611);
INSERT INTO "events" VALUES(25,'TrialReported','{"at_s":1795820887.808375,"trial":"s/a","report":{"at_s":1795820887.7178009,"iteration":15.0,"loss":0.0625,"service_s":0.3245915210000021,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2740709037);
INSERT INTO "events" VALUES(26,'TrialReported','{"at_s":1795820887.808375,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020260185000097408,"sync_s":0.0,"sub_steps":1}],"costs":null}',2604744606);
INSERT INTO "events" VALUES(27,'TrialReported','{"at_s":1795820887.808375,"trial":"s/b","report":{"at_s":1795820887.7998674,"iteration":10.0,"loss":0.09090909090909091,"service_s":0.21772834499995497,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',2209380687);
INSERT INTO "events" VALUES(28,'TrialReported','{"at_s":1795820887.808375,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020437051499982317,"sync_s":0.0,"sub_steps":1}],"costs":null}',2508752920);
INSERT INTO "events" VALUES(29,'TrialReported','{"at_s":1795820887.9161644,"trial":"s/a","report":{"at_s":1795820887.8247724,"iteration":20.0,"loss":0.047619047619047616,"service_s":0.4315663790000599,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',786481744);
INSERT INTO "events" VALUES(30,'TrialReported','{"at_s":1795820887.9161644,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020249845500018182,"sync_s":0.0,"sub_steps":1}],"costs":null}',2537101867);
INSERT INTO "events" VALUES(31,'TrialReported','{"at_s":1795820887.9161644,"trial":"s/b","report":{"at_s":1795820887.9048154,"iteration":15.0,"loss":0.0625,"service_s":0.31867746199998237,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',440564242);
INSERT INTO "events" VALUES(32,'TrialReported','{"at_s":1795820887.9161644,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020291826999937257,"sync_s":0.0,"sub_steps":1}],"costs":null}',2676379630);
INSERT INTO "events" VALUES(33,'TrialReported','{"at_s":1795820888.0200925,"trial":"s/a","report":{"at_s":1795820887.925672,"iteration":25.0,"loss":0.038461538461538464,"service_s":0.5325843509999686,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',3167359654);
INSERT INTO "events" VALUES(34,'TrialReported','{"at_s":1795820888.0200925,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020260185000097408,"sync_s":0.0,"sub_steps":1}],"costs":null}',4150320846);
INSERT INTO "events" VALUES(35,'TrialReported','{"at_s":1795820888.0200925,"trial":"s/b","report":{"at_s":1795820888.0117571,"iteration":20.0,"loss":0.047619047619047616,"service_s":0.4250230839999176,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',82573686);
INSERT INTO "events" VALUES(36,'TrialReported','{"at_s":1795820888.0200925,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020307146499987994,"sync_s":0.0,"sub_steps":1}],"costs":null}',1667423092);
INSERT INTO "events" VALUES(37,'TrialReported','{"at_s":1795820888.12764,"trial":"s/a","report":{"at_s":1795820888.0280643,"iteration":30.0,"loss":0.03225806451612903,"service_s":0.6349448329999632,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1061494508);
INSERT INTO "events" VALUES(38,'TrialReported','{"at_s":1795820888.12764,"trial":"s/a","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020260664500085568,"sync_s":0.0,"sub_steps":1}],"costs":null}',1590447051);
INSERT INTO "events" VALUES(39,'RunFinished','{"at_s":1795820888.12764,"trial":"s/a","step":30}',3163189221);
INSERT INTO "events" VALUES(40,'TrialReported','{"at_s":1795820888.12764,"trial":"s/b","report":{"at_s":1795820888.1178117,"iteration":25.0,"loss":0.038461538461538464,"service_s":0.5310695369998939,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',1717889751);
INSERT INTO "events" VALUES(41,'TrialReported','{"at_s":1795820888.12764,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020229751999977452,"sync_s":0.0,"sub_steps":1}],"costs":null}',3206521027);
INSERT INTO "events" VALUES(42,'Allocated','{"at_s":1795820888.12764,"policy":"tiresias","generation":2,"state":{"gpu_s":[]},"grants":{"s/b":{"gpus":[["here",1]],"servers":[],"batch_size":0},"s/c":{"gpus":[["here",1]],"servers":[],"batch_size":0}},"devices":{"s/b":[["here",1]],"s/c":[["here",0]]}}',1518228616);
INSERT INTO "events" VALUES(43,'TrialReported','{"at_s":1795820888.12764,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020291826999937257,"sync_s":0.0,"sub_steps":1}],"costs":null}',2756078599);
INSERT INTO "events" VALUES(44,'TrialReported','{"at_s":1795820888.12764,"trial":"s/b","report":{"at_s":1795820888.2250407,"iteration":30.0,"loss":0.03225806451612903,"service_s":0.6385206389999212,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',3071054197);
INSERT INTO "events" VALUES(45,'TrialReported','{"at_s":1795820888.12764,"trial":"s/b","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.02034649250003895,"sync_s":0.0,"sub_steps":1}],"costs":null}',2855541953);
INSERT INTO "events" VALUES(46,'RunFinished','{"at_s":1795820888.2250407,"trial":"s/b","step":30}',1100587832);
INSERT INTO "events" VALUES(47,'TrialReported','{"at_s":1795820888.2250407,"trial":"s/c","report":{"at_s":1795820888.3735383,"iteration":0.0,"loss":1.0,"service_s":0.0,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',4244457555);
INSERT INTO "events" VALUES(48,'RanksSeen','{"at_s":1795820888.2250407,"trial":"s/c","processes":{"here":{"pid":11200,"start":82404,"namespace":4026531836,"uid":null,"leased":false}}}',4030305322);
INSERT INTO "events" VALUES(49,'TrialReported','{"at_s":1795820888.4931629,"trial":"s/c","report":{"at_s":1795820888.4784658,"iteration":5.0,"loss":0.16666666666666666,"service_s":0.10509642700003496,"accuracy":null,"gradient_sqr":0.0,"gradient_var":0.0},"speeds":[],"costs":null}',432090346);
INSERT INTO "events" VALUES(50,'TrialReported','{"at_s":1795820888.4931629,"trial":"s/c","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020400793000021622,"sync_s":0.0,"sub_steps":1}],"costs":null}',2628059332);
INSERT INTO "events" VALUES(51,'TrialReported','{"at_s":1795820888.512014,"trial":"s/c","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020427224000002298,"sync_s":0.0,"sub_steps":1}],"costs":null}',1914132955);
INSERT INTO "events" VALUES(52,'TrialReported','{"at_s":1795820888.523499,"trial":"s/c","report":null,"speeds":[{"gpus":1,"nodes":1,"servers":0,"batch_size":64,"step_s":0.020400793000021622,"sync_s":0.0,"sub_steps":1}],"costs":null}',343725296);
INSERT INTO "events" VALUES(53,'Allocated','{"at_s":1795820888.553597,"policy":"tiresias","generation":3,"state":{"gpu_s":[]},"grants":{},"devices":{}}',25331626);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	number BIGINT NOT NULL, 
	checksum BIGINT NOT NULL, 
	term BIGINT NOT NULL, seal BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "head" VALUES(1,53,25331626,1,901340138);
CREATE TABLE snapshots (
	number BIGINT NOT NULL, 
	checksum BIGINT NOT NULL, 
	content TEXT NOT NULL, 
	content_checksum BIGINT NOT NULL, 
	PRIMARY KEY (number)
);
COMMIT;
